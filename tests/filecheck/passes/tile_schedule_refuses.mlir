// RUN: xdsl-opt %s -p tile-schedule --verify-diagnostics --split-input-file | filecheck %s

// CHECK: tile-schedule works on tile.program, and the module has nothing
builtin.module {
}

// -----

// CHECK: the task has no team; run tile-place first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.task relu (@x) -> (@h) base [8]
}

// -----

// CHECK: the task has no base tile; run tile-select-gmm first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.task gmm (@x, @w[0]) -> (@h) on aic[0:24]
}

// -----

// CHECK: the exchange is not lowered; run tile-lower-comm first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:48]
}

// -----

// CHECK: unknown policy 'fast'; there are serial, paper, list
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "fast" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.task relu (@x) -> (@h) base [8] on aiv[0:48]
}

// -----

// CHECK: no buffer @gone
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.task relu (@gone) -> (@h) base [8] on aiv[0:48]
}

// -----

// CHECK: no cost for operator 'softmax'
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.task softmax (@x) -> (@h) base [8] on aiv[0:48]
}

// -----

// CHECK: no group 7; there are 1
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.put dispatch[0, 7] @x -> @recv[0, 7] chunks 1 via put on aiv[0:48]
}

// -----

// An order by operators cannot follow a chain that comes back to an earlier buffer.
// CHECK: the policy 'paper' would run it too early
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "paper" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.task relu (@x) -> (@h[0, 0]) base [8] on aiv[0:48]
  %1 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) base [8] after(%0) on aiv[0:48]
  %2 = tile.task relu (@a[0, 0]) -> (@h[1, 0]) base [8] after(%1) on aiv[0:48]
}
