// RUN: xdsl-opt %s -p npu-insert-flags --split-input-file | filecheck %s

// The cores of a team share the tiles of a task, so even a dependency within one team is an
// event: every core sets it and waits for all.
// CHECK-LABEL: npu.program @one_team on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @s_ready 1 x 1
// CHECK-NEXT: npu.task relu (@p) -> (@s[*, 0]) base [8] on aiv[0:48]
// CHECK-NEXT: npu.set_flag @s_ready[0, 0] on aiv[0:48]
// CHECK-NEXT: npu.wait_flag @s_ready[0, 0] >= 48 on aiv[0:48]
// CHECK-NEXT: npu.task relu (@s[*, 0]) -> (@a[*, 0]) base [8] on aiv[0:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @one_team on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@p) -> (@s[*, 0]) base [8] on aiv[0:48]
  %1 = tile.task relu (@s[*, 0]) -> (@a[*, 0]) base [8] after(%0) on aiv[0:48]
}

// -----

// Between teams, the user waits for the team size of the producer. A result that nobody
// needs has no event; buffers and parameters are kept.
// CHECK-LABEL: npu.program @two_teams on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.buffer @p token 8 x 64 bf16 input
// CHECK-NEXT: npu.event @h_ready 1 x 1
// CHECK-NEXT: npu.task gmm (@p[0, 0], @w[0]) -> (@h[0, 0]) base [16, 16, 64] on aic[0:20]
// CHECK-NEXT: npu.set_flag @h_ready[0, 0] on aic[0:20]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 0] >= 20 on aiv[8:48]
// CHECK-NEXT: npu.task swiglu_oai (@h[0, 0]) -> (@a[0, 0]) params {alpha = 1.500000e+00 : f64} base [8] on aiv[8:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @two_teams on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @p token 8 x 64 bf16 input
  %0 = tile.task gmm (@p[0, 0], @w[0]) -> (@h[0, 0]) base [16, 16, 64] on aic[0:20]
  %1 = tile.task swiglu_oai (@h[0, 0]) -> (@a[0, 0]) params {alpha = 1.5} base [8] after(%0) on aiv[8:48] phase 3
}

// -----

// A put signals where its rows arrive: one signal for each source of the group and chunk.
// The waiting team counts what other ranks, and it itself, send. These rows do not come
// back, so no rank may end before all have read theirs.
// CHECK-LABEL: npu.program @signals on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>, array<i64: 1, 2>] row_chunks 1 {
// CHECK-NEXT: npu.event @recv_ready 2 x 2
// CHECK-NEXT: npu.put_mem_signal dispatch[1, 1] @x -> @recv[1, 1] scale chunks 4 via put signal @recv_ready[1, 1] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @recv_ready[1, 1] >= 8 on aiv[24:48]
// CHECK-NEXT: npu.task relu (@recv[1, 1]) -> (@h[1, 1]) base [8] on aiv[24:48]
// CHECK-NEXT: npu.barrier world on aiv[0:24]
// CHECK-NEXT: npu.barrier world on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8, 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @signals on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>, array<i64: 1, 2>] row_chunks 1 {
  %0 = tile.put dispatch[1, 1] @x -> @recv[1, 1] scale chunks 4 via put on aiv[0:24]
  %1 = tile.await(%0)
  %2 = tile.task relu (@recv[1, 1]) -> (@h[1, 1]) base [8] after(%1) on aiv[24:48]
}

// -----

// Puts awaited together share one counter, named after the first of them.
// CHECK-LABEL: npu.program @joined on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0, 1>] row_chunks 1 {
// CHECK-NEXT: npu.event @back_ready 1 x 1
// CHECK-NEXT: npu.put_mem_signal combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 2 via put signal @back_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal combine[1, 0] @y[1, 0] -> @back[1, 0] chunks 3 via put signal @back_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @back_ready[0, 0] >= 10 on aiv[24:48]
// CHECK-NEXT: npu.task reduce (@back) -> (@out[*, 0]) base [8] on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @joined on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0, 1>] row_chunks 1 {
  %0 = tile.put combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 2 via put on aiv[0:24]
  %1 = tile.put combine[1, 0] @y[1, 0] -> @back[1, 0] chunks 3 via put on aiv[0:24]
  %2 = tile.await(%0, %1)
  %3 = tile.task reduce (@back) -> (@out[*, 0]) base [8] after(%2) on aiv[24:48]
}

// -----

// A round trip needs no barrier: all cores that read the rows are joined before the rows go
// back, and the rank waits for them.
// CHECK-LABEL: npu.program @round_trip on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @recv_ready 1 x 1
// CHECK-NEXT: npu.event @y_ready 1 x 1
// CHECK-NEXT: npu.event @back_ready 1 x 1
// CHECK-NEXT: npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put signal @recv_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @recv_ready[0, 0] >= 1 on aiv[24:48]
// CHECK-NEXT: npu.task relu (@recv[0, 0]) -> (@y[0, 0]) base [8] on aiv[24:48]
// CHECK-NEXT: npu.set_flag @y_ready[0, 0] on aiv[24:48]
// CHECK-NEXT: npu.wait_flag @y_ready[0, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put signal @back_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @back_ready[0, 0] >= 1 on aiv[24:48]
// CHECK-NEXT: npu.task reduce (@back) -> (@out[*, 0]) base [8] on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @round_trip on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:24]
  %1 = tile.await(%0)
  %2 = tile.task relu (@recv[0, 0]) -> (@y[0, 0]) base [8] after(%1) on aiv[24:48]
  %3 = tile.put combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put after(%2) on aiv[0:24]
  %4 = tile.await(%3)
  %5 = tile.task reduce (@back) -> (@out[*, 0]) base [8] after(%4) on aiv[24:48]
}

// -----

// Rows that go back straight from where they arrived do: each core waits for itself.
// CHECK-LABEL: npu.program @echo on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @recv_ready 1 x 1
// CHECK-NEXT: npu.event @back_ready 1 x 1
// CHECK-NEXT: npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put signal @recv_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @recv_ready[0, 0] >= 1 on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal combine[0, 0] @recv[0, 0] -> @back[0, 0] chunks 1 via put signal @back_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @back_ready[0, 0] >= 1 on aiv[0:24]
// CHECK-NEXT: npu.barrier world on aiv[0:24]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @echo on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:24]
  %1 = tile.await(%0)
  %2 = tile.put combine[0, 0] @recv[0, 0] -> @back[0, 0] chunks 1 via put after(%1) on aiv[0:24]
  %3 = tile.await(%2)
}

// -----

// Two joins of the same kind do not share: each keeps the counter of its first put.
// CHECK-LABEL: npu.program @two_joins on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @r_ready 2 x 1
// CHECK-NEXT: npu.put_mem_signal dispatch[0, 0] @x -> @r[0, 0] chunks 1 via put signal @r_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal dispatch[1, 0] @x -> @r[1, 0] chunks 1 via put signal @r_ready[1, 0] on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal dispatch[0, 0] @v -> @s[0, 0] chunks 1 via put signal @r_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal dispatch[1, 0] @v -> @s[1, 0] chunks 1 via put signal @r_ready[1, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @r_ready[0, 0] >= 2 on aiv[24:48]
// CHECK-NEXT: npu.task add (@r[0, 0], @s[0, 0]) -> (@h[0, 0]) base [8] on aiv[24:48]
// CHECK-NEXT: npu.wait_flag @r_ready[1, 0] >= 2 on aiv[24:48]
// CHECK-NEXT: npu.task add (@r[1, 0], @s[1, 0]) -> (@h[1, 0]) base [8] on aiv[24:48]
// CHECK-NEXT: npu.barrier world on aiv[0:24]
// CHECK-NEXT: npu.barrier world on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @two_joins on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.put dispatch[0, 0] @x -> @r[0, 0] chunks 1 via put on aiv[0:24]
  %1 = tile.put dispatch[1, 0] @x -> @r[1, 0] chunks 1 via put on aiv[0:24]
  %2 = tile.put dispatch[0, 0] @v -> @s[0, 0] chunks 1 via put on aiv[0:24]
  %3 = tile.put dispatch[1, 0] @v -> @s[1, 0] chunks 1 via put on aiv[0:24]
  %4 = tile.await(%0, %2)
  %5 = tile.await(%1, %3)
  %6 = tile.task add (@r[0, 0], @s[0, 0]) -> (@h[0, 0]) base [8] after(%4) on aiv[24:48]
  %7 = tile.task add (@r[1, 0], @s[1, 0]) -> (@h[1, 0]) base [8] after(%5) on aiv[24:48]
}

// -----

// What other ranks send and no task reads must have arrived before the end.
// CHECK-LABEL: npu.program @unread on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @back_ready 1 x 1
// CHECK-NEXT: npu.put_mem_signal combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put signal @back_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @back_ready[0, 0] >= 1 on aiv[0:24]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @unread on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.put combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put on aiv[0:24]
  %1 = tile.await(%0)
}

// -----

// Policy serial: every phase is a kernel; around an exchange all ranks meet, otherwise the
// teams of one. After a last exchange they meet once more. No events.
// CHECK-LABEL: npu.program @phases on "ascend_a3" mode "forward" policy "serial"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.barrier rank launch on aiv[0:48]
// CHECK-NEXT: npu.barrier rank launch on aic[0:24]
// CHECK-NEXT: npu.task relu (@p) -> (@q) base [8] on aiv[0:48]
// CHECK-NEXT: npu.barrier rank launch on aiv[0:48]
// CHECK-NEXT: npu.barrier rank launch on aic[0:24]
// CHECK-NEXT: npu.task gmm (@q, @w[0]) -> (@r) base [16, 16, 64] on aic[0:24]
// CHECK-NEXT: npu.barrier world launch on aiv[0:48]
// CHECK-NEXT: npu.barrier world launch on aic[0:24]
// CHECK-NEXT: npu.put_mem_signal dispatch[0, 0] @r -> @recv[0, 0] chunks 1 via collective on aiv[0:48]
// CHECK-NEXT: npu.put_mem_signal dispatch[1, 0] @r -> @recv[1, 0] chunks 1 via collective on aiv[0:48]
// CHECK-NEXT: npu.barrier world on aiv[0:48]
// CHECK-NEXT: npu.barrier world on aic[0:24]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @phases on "ascend_a3" mode "forward" policy "serial" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@p) -> (@q) base [8] on aiv[0:48] phase 0
  %1 = tile.task gmm (@q, @w[0]) -> (@r) base [16, 16, 64] after(%0) on aic[0:24] phase 1
  %2 = tile.put dispatch[0, 0] @r -> @recv[0, 0] chunks 1 via collective after(%1) on aiv[0:48] phase 2
  %3 = tile.put dispatch[1, 0] @r -> @recv[1, 0] chunks 1 via collective after(%1) on aiv[0:48] phase 2
  %4 = tile.await(%2, %3)
}
