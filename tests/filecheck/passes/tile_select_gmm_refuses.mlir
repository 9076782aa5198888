// RUN: xdsl-opt %s -p tile-select-gmm --verify-diagnostics --split-input-file | filecheck %s

// CHECK: tile-select-gmm works on tile.program, and the module has nothing
builtin.module {
}

// -----

// A pin that does not fit names the memory, the need and the size there is.
// CHECK: base tile 256x256x64 needs 262144 bytes of L0C (m x n in fp32, bf16), ascend_a3 has 131072
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {base_tile = array<i64: 256, 256, 64>}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
}

// -----

// CHECK: base tile m = 20 is not a positive multiple of 16
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {base_tile = array<i64: 20, 16, 16>}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
}

// -----

// CHECK: a base tile is m, n, k, got [16, 16]
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {base_tile = array<i64: 16, 16>}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
}

// -----

// CHECK: the pin 'base_tile' in the spec cannot be big
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {base_tile = "big"}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
}

// -----

// CHECK: a gmm reads two regions, got 1
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0]) -> (@h[0, 0])
}

// -----

// CHECK: no buffer @w_gone
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_gone[0]) -> (@h[0, 0])
}

// -----

// CHECK: no group 1; there are 1
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 1], @w_up[0]) -> (@h[0, 1])
}

// -----

// CHECK: no group -1; there are 1
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0], @w_up[0]) -> (@h[0])
}

// -----

// CHECK: the groups have 2 sources, the spec 1 ranks
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
}
