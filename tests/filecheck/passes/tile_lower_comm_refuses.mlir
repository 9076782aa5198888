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

// -----

// How finely many rows are cut depends on how many cores there are.
// CHECK: the exchange has no team; run tile-place first
#spec = {tokens = array<i64: 400, 400>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 1 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "counts", counts = [array<i64: 40, 40, 280, 40>, array<i64: 100, 100, 100, 100>]}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0, 1>] row_chunks 1 {
  tile.buffer @x token 400 x 64 bf16 input
  tile.buffer @recv routed 800 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
}

// -----

// CHECK: no expert 2; a rank has 2
#spec = {tokens = array<i64: 400, 400>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 1 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "counts", counts = [array<i64: 40, 40, 280, 40>, array<i64: 100, 100, 100, 100>]}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0, 1>] row_chunks 1 {
  tile.buffer @x token 400 x 64 bf16 input
  tile.buffer @recv routed 800 x 64 bf16 workspace
  %0 = tile.exchange dispatch[2, 0] @x -> @recv[2, 0] on aiv[0:24]
}

// -----

// CHECK: no group 1; there are 1
#spec = {tokens = array<i64: 400, 400>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 1 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "counts", counts = [array<i64: 40, 40, 280, 40>, array<i64: 100, 100, 100, 100>]}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0, 1>] row_chunks 1 {
  tile.buffer @x token 400 x 64 bf16 input
  tile.buffer @recv routed 800 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1] on aiv[0:24]
}

// -----

// CHECK: the routing does not fit: rank 5 does not exist: ranks are 0 to 1
#spec = {tokens = array<i64: 400, 400>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 1 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "one_rank", params = {r = 5.0}}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0, 1>] row_chunks 1 {
  tile.buffer @x token 400 x 64 bf16 input
  tile.buffer @recv routed 800 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:24]
}
