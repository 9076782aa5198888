// RUN: xdsl-opt %s -p npu-insert-flags --verify-diagnostics --split-input-file | filecheck %s

// CHECK: npu-insert-flags works on tile.program, and the module has nothing
builtin.module {
}

// -----

// CHECK: the task has no team; run tile-place first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@x) -> (@h) base [8]
}

// -----

// CHECK: the task has no base tile; run tile-select-gmm first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@x) -> (@h) on aiv[0:48]
}

// -----

// CHECK: the exchange is not lowered; run tile-lower-comm first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:48]
}

// -----

// CHECK: the task has no team; run tile-place first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put
  %1 = tile.await(%0)
}

// -----

// CHECK: no group 2; there are 1
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.put dispatch[0, 2] @x -> @recv[0, 2] chunks 1 via put on aiv[0:48]
  %1 = tile.await(%0)
}

// -----

// CHECK: the task has no phase; run tile-schedule first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "serial" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@x) -> (@h) base [8] on aiv[0:48]
}

// -----

// CHECK: unknown policy 'fast'; there are serial, paper, list
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "fast" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@x) -> (@h) base [8] on aiv[0:48]
}
