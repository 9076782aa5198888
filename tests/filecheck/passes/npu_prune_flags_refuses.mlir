// RUN: xdsl-opt %s -p npu-prune-flags --verify-diagnostics --split-input-file | filecheck %s

// CHECK: npu-prune-flags works on npu.program, and the module has nothing
builtin.module {
}

// -----

// In queues, the order between teams is lost, which tells what a set hands on.
// CHECK: npu-prune-flags comes before npu-outline-queues
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @e 1 x 1
  npu.queue aic[0:1] {
    npu.set_flag @e[0, 0]
  }
}
