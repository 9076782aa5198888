// RUN: xdsl-opt %s -p tile-place --verify-diagnostics --split-input-file | filecheck %s

// CHECK: tile-place works on tile.program, and the module has moe.layer
moe.layer @p on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xbf16>):
  moe.return %x : tensor<8x64xbf16>
}

// -----

// Operators are known by the cost table.
// CHECK: no cost for operator 'softmax'
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task softmax (@x) -> (@y)
}

// -----

// CHECK: no cost for operator 'swigl'; did you mean 'swiglu'?
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task swigl (@x) -> (@y)
}

// -----

// Teams are limited by the cores of the machine.
// CHECK: aic must be 1 to the 24 cores of ascend_a3, got 25
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {aic = 25 : i64}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0)
  %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%1)
}

// -----

// CHECK: vector_aiv must be 1 to the 48 cores of ascend_a3, got 49
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {vector_aiv = 49 : i64}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0)
  %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%1)
}

// -----

// CHECK: comm_aiv + vector_aiv = 24 + 25 = 49 exceeds the 48 AIV cores of ascend_a3
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {comm_aiv = 24 : i64, vector_aiv = 25 : i64}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0)
  %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%1)
}

// -----

// CHECK: comm_aiv = 48 leaves no AIV core of ascend_a3 for vector work
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {comm_aiv = 48 : i64}, routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0)
  %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%1)
}

// -----

// CHECK: no group 3; there are 1
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@h[0, 3]) -> (@a[0, 3])
  %1 = tile.exchange combine[0, 0] @a -> @back
}
