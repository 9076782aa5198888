// RUN: xdsl-opt %s -p npu-check --verify-diagnostics --split-input-file | filecheck %s

// CHECK: npu-check works on npu.program, and the module has nothing
builtin.module {
}

// -----

// What the earlier passes of the pipeline make is there.
// CHECK: npu.set_flag stands outside a queue; run npu-outline-queues
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1 ids [0]
  npu.set_flag @s_ready[0, 0] on aiv[0:24]
}

// -----

// CHECK: @s_ready has no ids; run npu-allocate-events
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1
  npu.queue aiv[0:24] {
    npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
    npu.set_flag @s_ready[0, 0]
  }
  npu.queue aiv[24:48] {
    npu.wait_flag @s_ready[0, 0] >= 24
    npu.task gelu (@s[*, 0]) -> (@a[*, 0]) base [8]
  }
}

// -----

// CHECK: @s_ready[0, 0] has no id
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1 ids [-1]
  npu.queue aiv[0:24] {
    npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
    npu.set_flag @s_ready[0, 0]
  }
  npu.queue aiv[24:48] {
    npu.wait_flag @s_ready[0, 0] >= 24
    npu.task gelu (@s[*, 0]) -> (@a[*, 0]) base [8]
  }
}

// -----

// CHECK: no event @b_ready
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1 ids [0]
  npu.queue aiv[0:24] {
    npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
    npu.set_flag @b_ready[0, 0]
  }
  npu.queue aiv[24:48] {
    npu.wait_flag @s_ready[0, 0] >= 24
    npu.task gelu (@s[*, 0]) -> (@a[*, 0]) base [8]
  }
}

// -----

// CHECK: @s_ready[1, 0] is outside 1x1
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1 ids [0]
  npu.queue aiv[0:24] {
    npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
    npu.set_flag @s_ready[1, 0]
  }
  npu.queue aiv[24:48] {
    npu.wait_flag @s_ready[0, 0] >= 24
    npu.task gelu (@s[*, 0]) -> (@a[*, 0]) base [8]
  }
}

// -----

// CHECK: a buffer holds bf16, f16, f32, got f64
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 f64 input
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

// -----

// A wait whose signals never come, a threshold that is not their number, an output that is
// never written: each violation with its rule.
// CHECK: the schedule is not safe:
// CHECK: [event-unsignalled] s_ready[0,0] is waited for, but nothing signals it
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1 ids [0]
  npu.queue aiv[0:24] {
    npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
  }
  npu.queue aiv[24:48] {
    npu.wait_flag @s_ready[0, 0] >= 24
    npu.task gelu (@s[*, 0]) -> (@a[*, 0]) base [8]
  }
}

// -----

// CHECK: [wait-need] waits for 25 of s_ready[0,0], a launch brings 24
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1 ids [0]
  npu.queue aiv[0:24] {
    npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
    npu.set_flag @s_ready[0, 0]
  }
  npu.queue aiv[24:48] {
    npu.wait_flag @s_ready[0, 0] >= 25
    npu.task gelu (@s[*, 0]) -> (@a[*, 0]) base [8]
  }
}

// -----

// CHECK: [written-never] output a
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @s token 8 x 64 bf16 workspace
  npu.buffer @a token 8 x 64 bf16 output
  npu.event @s_ready 1 x 1 ids [0]
  npu.queue aiv[0:24] {
    npu.task relu (@x[*, 0]) -> (@s[*, 0]) base [8]
    npu.set_flag @s_ready[0, 0]
  }
}
