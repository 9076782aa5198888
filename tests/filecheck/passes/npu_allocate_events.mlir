// RUN: xdsl-opt %s -p npu-allocate-events --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'npu-allocate-events{limit=3}' --split-input-file | filecheck %s --check-prefix=THREE

// Numbers follow the order of the first waits; a counter nobody waits for has none.
// CHECK-LABEL: npu.program @numbered on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @h_ready 2 x 2 ids [-1, 2, 1, -1]
// CHECK-NEXT: npu.event @a_ready 1 x 1 ids [0]
// CHECK-NEXT: npu.set_flag @a_ready[0, 0] on aiv[0:48]
// CHECK-NEXT: npu.wait_flag @a_ready[0, 0] >= 48 on aic[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[1, 0] >= 24 on aiv[0:48]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 1] >= 24 on aiv[0:48]
// CHECK-NEXT: npu.wait_flag @a_ready[0, 0] >= 48 on aiv[0:48]
// CHECK-NEXT: }
// THREE-LABEL: npu.program @numbered on "ascend_a3" mode "forward" policy "list"
// THREE-SAME: groups [array<i64: 0>] row_chunks 1 {
// THREE-NEXT: npu.event @h_ready 2 x 2 ids [-1, 2, 1, -1]
// THREE-NEXT: npu.event @a_ready 1 x 1 ids [0]
// THREE-NEXT: npu.set_flag @a_ready[0, 0] on aiv[0:48]
// THREE-NEXT: npu.wait_flag @a_ready[0, 0] >= 48 on aic[0:24]
// THREE-NEXT: npu.wait_flag @h_ready[1, 0] >= 24 on aiv[0:48]
// THREE-NEXT: npu.wait_flag @h_ready[0, 1] >= 24 on aiv[0:48]
// THREE-NEXT: npu.wait_flag @a_ready[0, 0] >= 48 on aiv[0:48]
// THREE-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @numbered on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @h_ready 2 x 2
  npu.event @a_ready 1 x 1
  npu.set_flag @a_ready[0, 0] on aiv[0:48]
  npu.wait_flag @a_ready[0, 0] >= 48 on aic[0:24]
  npu.wait_flag @h_ready[1, 0] >= 24 on aiv[0:48]
  npu.wait_flag @h_ready[0, 1] >= 24 on aiv[0:48]
  npu.wait_flag @a_ready[0, 0] >= 48 on aiv[0:48]
}

// -----

// Four counters, room for three: two neighbouring experts share one, its threshold is the sum,
// and a team waits for it once.
// CHECK-LABEL: npu.program @shared on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @h_ready 4 x 1 ids [0, 1, 2, 3]
// CHECK-NEXT: npu.set_flag @h_ready[0, 0] on aic[0:24]
// CHECK-NEXT: npu.set_flag @h_ready[1, 0] on aic[0:24]
// CHECK-NEXT: npu.set_flag @h_ready[2, 0] on aic[0:24]
// CHECK-NEXT: npu.set_flag @h_ready[3, 0] on aic[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: npu.task relu (@h[0, 0]) -> (@a[0, 0]) base [1] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[1, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: npu.task relu (@h[1, 0]) -> (@a[1, 0]) base [1] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[1, 0] >= 24 on aiv[24:48]
// CHECK-NEXT: npu.wait_flag @h_ready[2, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[3, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: }
// THREE-LABEL: npu.program @shared on "ascend_a3" mode "forward" policy "list"
// THREE-SAME: groups [array<i64: 0>] row_chunks 1 {
// THREE-NEXT: npu.event @h_ready 4 x 1 ids [0, 0, 1, 1]
// THREE-NEXT: npu.set_flag @h_ready[0, 0] on aic[0:24]
// THREE-NEXT: npu.set_flag @h_ready[1, 0] on aic[0:24]
// THREE-NEXT: npu.set_flag @h_ready[2, 0] on aic[0:24]
// THREE-NEXT: npu.set_flag @h_ready[3, 0] on aic[0:24]
// THREE-NEXT: npu.wait_flag @h_ready[0, 0] >= 48 on aiv[0:24]
// THREE-NEXT: npu.task relu (@h[0, 0]) -> (@a[0, 0]) base [1] on aiv[0:24]
// THREE-NEXT: npu.task relu (@h[1, 0]) -> (@a[1, 0]) base [1] on aiv[0:24]
// THREE-NEXT: npu.wait_flag @h_ready[1, 0] >= 48 on aiv[24:48]
// THREE-NEXT: npu.wait_flag @h_ready[2, 0] >= 48 on aiv[0:24]
// THREE-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @shared on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @h_ready 4 x 1
  npu.set_flag @h_ready[0, 0] on aic[0:24]
  npu.set_flag @h_ready[1, 0] on aic[0:24]
  npu.set_flag @h_ready[2, 0] on aic[0:24]
  npu.set_flag @h_ready[3, 0] on aic[0:24]
  npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:24]
  npu.task relu (@h[0, 0]) -> (@a[0, 0]) base [1] on aiv[0:24]
  npu.wait_flag @h_ready[1, 0] >= 24 on aiv[0:24]
  npu.task relu (@h[1, 0]) -> (@a[1, 0]) base [1] on aiv[0:24]
  npu.wait_flag @h_ready[1, 0] >= 24 on aiv[24:48]
  npu.wait_flag @h_ready[2, 0] >= 24 on aiv[0:24]
  npu.wait_flag @h_ready[3, 0] >= 24 on aiv[0:24]
}

// -----

// Parts of one expert never share: other sources would be waited for.
// CHECK-LABEL: npu.program @parts on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
// CHECK-NEXT: npu.event @recv_ready 2 x 2 ids [0, 2, 1, 3]
// CHECK-NEXT: npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put signal @recv_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal dispatch[1, 0] @x -> @recv[1, 0] chunks 1 via put signal @recv_ready[1, 0] on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal dispatch[0, 1] @x -> @recv[0, 1] chunks 1 via put signal @recv_ready[0, 1] on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal dispatch[1, 1] @x -> @recv[1, 1] chunks 1 via put signal @recv_ready[1, 1] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @recv_ready[0, 0] >= 1 on aic[0:24]
// CHECK-NEXT: npu.wait_flag @recv_ready[1, 0] >= 1 on aic[0:24]
// CHECK-NEXT: npu.wait_flag @recv_ready[0, 1] >= 1 on aic[0:24]
// CHECK-NEXT: npu.wait_flag @recv_ready[1, 1] >= 1 on aic[0:24]
// CHECK-NEXT: }
// THREE-LABEL: npu.program @parts on "ascend_a3" mode "forward" policy "list"
// THREE-SAME: groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
// THREE-NEXT: npu.event @recv_ready 2 x 2 ids [0, 1, 0, 1]
// THREE-NEXT: npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put signal @recv_ready[0, 0] on aiv[0:24]
// THREE-NEXT: npu.put_mem_signal dispatch[1, 0] @x -> @recv[1, 0] chunks 1 via put signal @recv_ready[1, 0] on aiv[0:24]
// THREE-NEXT: npu.put_mem_signal dispatch[0, 1] @x -> @recv[0, 1] chunks 1 via put signal @recv_ready[0, 1] on aiv[0:24]
// THREE-NEXT: npu.put_mem_signal dispatch[1, 1] @x -> @recv[1, 1] chunks 1 via put signal @recv_ready[1, 1] on aiv[0:24]
// THREE-NEXT: npu.wait_flag @recv_ready[0, 0] >= 2 on aic[0:24]
// THREE-NEXT: npu.wait_flag @recv_ready[0, 1] >= 2 on aic[0:24]
// THREE-NEXT: }
#spec = {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @parts on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
  npu.event @recv_ready 2 x 2
  npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put signal @recv_ready[0, 0] on aiv[0:24]
  npu.put_mem_signal dispatch[1, 0] @x -> @recv[1, 0] chunks 1 via put signal @recv_ready[1, 0] on aiv[0:24]
  npu.put_mem_signal dispatch[0, 1] @x -> @recv[0, 1] chunks 1 via put signal @recv_ready[0, 1] on aiv[0:24]
  npu.put_mem_signal dispatch[1, 1] @x -> @recv[1, 1] chunks 1 via put signal @recv_ready[1, 1] on aiv[0:24]
  npu.wait_flag @recv_ready[0, 0] >= 1 on aic[0:24]
  npu.wait_flag @recv_ready[1, 0] >= 1 on aic[0:24]
  npu.wait_flag @recv_ready[0, 1] >= 1 on aic[0:24]
  npu.wait_flag @recv_ready[1, 1] >= 1 on aic[0:24]
}
