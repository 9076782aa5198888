// RUN: xdsl-opt %s -p npu-prune-flags --split-input-file | filecheck %s

// A team that waited for a counter knows it is full; another team does not.
// CHECK-LABEL: npu.program @repeated on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @h_ready 1 x 1
// CHECK-NEXT: npu.set_flag @h_ready[0, 0] on aic[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 0] >= 24 on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @repeated on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @h_ready 1 x 1
  npu.set_flag @h_ready[0, 0] on aic[0:24]
  npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:24]
  npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:24]
  npu.wait_flag @h_ready[0, 0] >= 24 on aiv[24:48]
}

// -----

// A set hands on what its team knew: who waited for a knows h. The event of h keeps the
// wait of the team in between.
// CHECK-LABEL: npu.program @handed_on on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @h_ready 1 x 1
// CHECK-NEXT: npu.event @a_ready 1 x 1
// CHECK-NEXT: npu.set_flag @h_ready[0, 0] on aic[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:48]
// CHECK-NEXT: npu.set_flag @a_ready[0, 0] on aiv[0:48]
// CHECK-NEXT: npu.wait_flag @a_ready[0, 0] >= 48 on aic[0:24]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @handed_on on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @h_ready 1 x 1
  npu.event @a_ready 1 x 1
  npu.set_flag @h_ready[0, 0] on aic[0:24]
  npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:48]
  npu.set_flag @a_ready[0, 0] on aiv[0:48]
  npu.wait_flag @a_ready[0, 0] >= 48 on aic[0:24]
  npu.wait_flag @h_ready[0, 0] >= 24 on aic[0:24]
}

// -----

// What the team learns after its set is not handed on.
// CHECK-LABEL: npu.program @too_late on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @h_ready 1 x 1
// CHECK-NEXT: npu.event @a_ready 1 x 1
// CHECK-NEXT: npu.set_flag @h_ready[0, 0] on aic[0:24]
// CHECK-NEXT: npu.set_flag @a_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @a_ready[0, 0] >= 24 on aiv[24:48]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 0] >= 24 on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @too_late on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @h_ready 1 x 1
  npu.event @a_ready 1 x 1
  npu.set_flag @h_ready[0, 0] on aic[0:24]
  npu.set_flag @a_ready[0, 0] on aiv[0:24]
  npu.wait_flag @h_ready[0, 0] >= 24 on aiv[0:24]
  npu.wait_flag @a_ready[0, 0] >= 24 on aiv[24:48]
  npu.wait_flag @h_ready[0, 0] >= 24 on aiv[24:48]
}

// -----

// A signal comes from other ranks, whose counters are theirs: it hands on nothing.
// CHECK-LABEL: npu.program @remote on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @y_ready 1 x 1
// CHECK-NEXT: npu.event @back_ready 1 x 1
// CHECK-NEXT: npu.set_flag @y_ready[0, 0] on aic[0:24]
// CHECK-NEXT: npu.wait_flag @y_ready[0, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put signal @back_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @back_ready[0, 0] >= 1 on aiv[24:48]
// CHECK-NEXT: npu.wait_flag @y_ready[0, 0] >= 24 on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @remote on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @y_ready 1 x 1
  npu.event @back_ready 1 x 1
  npu.set_flag @y_ready[0, 0] on aic[0:24]
  npu.wait_flag @y_ready[0, 0] >= 24 on aiv[0:24]
  npu.put_mem_signal combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put signal @back_ready[0, 0] on aiv[0:24]
  npu.wait_flag @back_ready[0, 0] >= 1 on aiv[24:48]
  npu.wait_flag @y_ready[0, 0] >= 24 on aiv[24:48]
}

// -----

// Nor does a counter that both a team sets and ranks signal.
// CHECK-LABEL: npu.program @mixed on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @y_ready 1 x 1
// CHECK-NEXT: npu.event @back_ready 1 x 1
// CHECK-NEXT: npu.set_flag @y_ready[0, 0] on aic[0:24]
// CHECK-NEXT: npu.wait_flag @y_ready[0, 0] >= 24 on aiv[0:24]
// CHECK-NEXT: npu.put_mem_signal combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put signal @back_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.set_flag @back_ready[0, 0] on aiv[0:24]
// CHECK-NEXT: npu.wait_flag @back_ready[0, 0] >= 25 on aiv[24:48]
// CHECK-NEXT: npu.wait_flag @y_ready[0, 0] >= 24 on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @mixed on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @y_ready 1 x 1
  npu.event @back_ready 1 x 1
  npu.set_flag @y_ready[0, 0] on aic[0:24]
  npu.wait_flag @y_ready[0, 0] >= 24 on aiv[0:24]
  npu.put_mem_signal combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put signal @back_ready[0, 0] on aiv[0:24]
  npu.set_flag @back_ready[0, 0] on aiv[0:24]
  npu.wait_flag @back_ready[0, 0] >= 25 on aiv[24:48]
  npu.wait_flag @y_ready[0, 0] >= 24 on aiv[24:48]
}

// -----

// Signals and sets that nobody waits for go, and an event without any wait goes too.
// CHECK-LABEL: npu.program @unheard on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: npu.event @h_ready 1 x 2
// CHECK-NEXT: npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:24]
// CHECK-NEXT: npu.set_flag @h_ready[0, 1] on aic[0:24]
// CHECK-NEXT: npu.wait_flag @h_ready[0, 1] >= 24 on aiv[0:24]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
npu.program @unheard on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  npu.event @recv_ready 1 x 1
  npu.event @h_ready 1 x 2
  npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put signal @recv_ready[0, 0] on aiv[0:24]
  npu.set_flag @h_ready[0, 0] on aic[0:24]
  npu.set_flag @h_ready[0, 1] on aic[0:24]
  npu.wait_flag @h_ready[0, 1] >= 24 on aiv[0:24]
}
