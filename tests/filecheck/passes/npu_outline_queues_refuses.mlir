// RUN: xdsl-opt %s -p npu-outline-queues --verify-diagnostics --split-input-file | filecheck %s

// CHECK: npu-outline-queues works on npu.program, and the module has nothing
builtin.module {
}

// -----

// CHECK: the instruction has no team; run tile-place first
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @e 1 x 1
  npu.set_flag @e[0, 0]
}
