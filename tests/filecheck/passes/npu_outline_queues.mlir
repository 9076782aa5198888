// RUN: xdsl-opt %s -p npu-outline-queues --split-input-file | filecheck %s

// One queue for each team, AICs first, then by first core, each in program order; the
// instructions no longer name the team. Declarations stay in front.
// CHECK-LABEL: npu.program @teams on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.buffer @x token 8 x 64 bf16 input
// CHECK-NEXT: npu.event @a_ready 1 x 1 ids [0]
// CHECK-NEXT: npu.event @b_ready 1 x 1 ids [1]
// CHECK-NEXT: npu.queue aic[0:24] {
// CHECK-NEXT: npu.wait_flag @a_ready[0, 0] >= 24
// CHECK-NEXT: npu.wait_flag @b_ready[0, 0] >= 24
// CHECK-NEXT: }
// CHECK-NEXT: npu.queue aiv[0:24] {
// CHECK-NEXT: npu.barrier rank
// CHECK-NEXT: }
// CHECK-NEXT: npu.queue aiv[24:48] {
// CHECK-NEXT: npu.set_flag @a_ready[0, 0]
// CHECK-NEXT: npu.set_flag @b_ready[0, 0]
// CHECK-NEXT: }
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @teams on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.event @a_ready 1 x 1 ids [0]
  npu.event @b_ready 1 x 1 ids [1]
  npu.set_flag @a_ready[0, 0] on aiv[24:48]
  npu.wait_flag @a_ready[0, 0] >= 24 on aic[0:24]
  npu.barrier rank on aiv[0:24]
  npu.set_flag @b_ready[0, 0] on aiv[24:48]
  npu.wait_flag @b_ready[0, 0] >= 24 on aic[0:24]
}

// -----

// Outlining again changes nothing.
// CHECK-LABEL: npu.program @again on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @a_ready 1 x 1
// CHECK-NEXT: npu.queue aiv[0:48] {
// CHECK-NEXT: npu.set_flag @a_ready[0, 0]
// CHECK-NEXT: }
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @again on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @a_ready 1 x 1
  npu.queue aiv[0:48] {
    npu.set_flag @a_ready[0, 0]
  }
}
