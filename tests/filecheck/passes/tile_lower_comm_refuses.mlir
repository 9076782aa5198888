// RUN: xdsl-opt %s -p tile-lower-comm --verify-diagnostics --split-input-file | filecheck %s

// CHECK: tile-lower-comm works on tile.program, and the module has nothing
builtin.module {
}

// -----

// More chunks than rows would be empty puts.
// CHECK: the pin row_chunks must be 1 to 8, got 100
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {row_chunks = 100 : i64}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
}

// -----

// CHECK: the spec of the program lacks 'activation'
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
}
