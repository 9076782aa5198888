// RUN: xdsl-opt %s -p npu-check --split-input-file | filecheck %s

// A program that is safe stays as it is.
// CHECK-LABEL: npu.program @safe on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.buffer @x token 8 x 64 bf16 input
// CHECK-NEXT: npu.buffer @s token 8 x 64 bf16 workspace
// CHECK-NEXT: npu.buffer @a token 8 x 64 bf16 output
// CHECK-NEXT: npu.event @s_ready 1 x 1 ids [0]
// CHECK-NEXT: npu.queue aiv[0:24] {
// CHECK-NEXT: npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
// CHECK-NEXT: npu.set_flag @s_ready[0, 0]
// CHECK-NEXT: }
// CHECK-NEXT: npu.queue aiv[24:48] {
// CHECK-NEXT: npu.wait_flag @s_ready[0, 0] >= 24
// CHECK-NEXT: npu.task gelu (@s[*, 0]) -> (@a[*, 0]) base [8]
// CHECK-NEXT: }
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @safe on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1 ids [0]
  npu.queue aiv[0:24] {
    npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
    npu.set_flag @s_ready[0, 0]
  }
  npu.queue aiv[24:48] {
    npu.wait_flag @s_ready[0, 0] >= 24
    npu.task gelu (@s[*, 0]) -> (@a[*, 0]) base [8]
  }
}
