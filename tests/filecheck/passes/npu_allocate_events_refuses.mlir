// RUN: xdsl-opt %s -p 'npu-allocate-events{limit=2}' --verify-diagnostics --split-input-file | filecheck %s

// CHECK: npu-allocate-events works on npu.program, and the module has nothing
builtin.module {
}

// -----

// CHECK: npu-allocate-events comes before npu-outline-queues
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @e 1 x 1
  npu.queue aic[0:1] {
    npu.set_flag @e[0, 0]
  }
}

// -----

// CHECK: two waits for one counter of @e differ
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @e 1 x 1
  npu.wait_flag @e[0, 0] >= 1 on aic[0:1]
  npu.wait_flag @e[0, 0] >= 2 on aic[0:1]
}

// -----

// Only experts share: three events need three numbers.
// CHECK: the schedule needs 3 events, 3 when all experts share, and there are 2; use fewer groups or more ranks
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @a 1 x 1
  npu.event @b 1 x 1
  npu.event @c 1 x 1
  npu.wait_flag @a[0, 0] >= 1 on aic[0:1]
  npu.wait_flag @b[0, 0] >= 1 on aic[0:1]
  npu.wait_flag @c[0, 0] >= 1 on aic[0:1]
}

// -----

// Expert 1 is set only after a wait for expert 0: sharing would wait for what that wait
// holds up.
// CHECK: 3 events do not fit the 2 there are, and sharing @e between 2 experts would hang
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @e 3 x 1
  npu.set_flag @e[0, 0] on aic[0:1]
  npu.wait_flag @e[0, 0] >= 1 on aiv[0:1]
  npu.set_flag @e[1, 0] on aic[0:1]
  npu.wait_flag @e[1, 0] >= 1 on aiv[0:1]
  npu.set_flag @e[2, 0] on aic[0:1]
  npu.wait_flag @e[2, 0] >= 1 on aiv[0:1]
}
