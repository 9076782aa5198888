// RUN: %roundtrip
// RUN: %generic

// Flat: every instruction names its team. All optional parts, with and without.
// CHECK-LABEL: npu.program @flat on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
// CHECK-NEXT:    npu.buffer @x token 8 x 64 bf16 input
// CHECK-NEXT:    npu.buffer @recv routed 32 x 64 bf16 workspace symmetric formula "8 x 2 x 2"
// CHECK-NEXT:    npu.event @recv_ready 2 x 2
// CHECK-NEXT:    npu.event @h_ready 1 x 2 ids [4, -1]
// CHECK-NEXT:    npu.put_mem_signal dispatch[0, 1] @x -> @recv[0, 1] scale chunks 4 via put signal @recv_ready[0, 1] on aiv[0:24]
// CHECK-NEXT:    npu.put_mem_signal combine[0, 1] @y[0, 1] -> @back[0, 1] chunks 1 via collective
// CHECK-NEXT:    npu.wait_flag @recv_ready[0, 1] >= 4 on aic[0:24]
// CHECK-NEXT:    npu.task gmm (@recv[0, 1], @w_up[0]) -> (@h[0, 1]) base [128, 256, 64] on aic[0:24]
// CHECK-NEXT:    npu.set_flag @h_ready[0, 1] on aic[0:24]
// CHECK-NEXT:    npu.barrier world launch on aic[0:24]
// CHECK-NEXT:    npu.barrier rank on aiv[0:24] {note = "kept"}
// CHECK-NEXT:  }
// GENERIC-LABEL: "npu.program"() <{sym_name = "flat", machine = "ascend_a3", mode = "forward", policy = "list", spec = {}, groups = [array<i64: 0>, array<i64: 1>], row_chunks = 1 : i64}> ({
// GENERIC-NEXT:    "npu.buffer"() <{sym_name = "x", space = "token", rows = 8 : i64, cols = 64 : i64, element = bf16, role = "input"}> : () -> ()
// GENERIC:         "npu.event"() <{sym_name = "recv_ready", experts = 2 : i64, parts = 2 : i64}> : () -> ()
// GENERIC-NEXT:    "npu.event"() <{sym_name = "h_ready", experts = 1 : i64, parts = 2 : i64, ids = array<i64: 4, -1>}> : () -> ()
// GENERIC-NEXT:    "npu.put_mem_signal"() <{kind = "dispatch", expert = 0 : i64, group = 1 : i64, source = #tile.region<@x>, dest = #tile.region<@recv[0, 1]>, scale, chunks = 4 : i64, transport = "put", signal = #npu.flag<@recv_ready[0, 1]>, team = #tile.team<aiv[0:24]>}> : () -> ()
// GENERIC:         "npu.wait_flag"() <{flag = #npu.flag<@recv_ready[0, 1]>, need = 4 : i64, team = #tile.team<aic[0:24]>}> : () -> ()
// GENERIC-NEXT:    "npu.task"() <{op = "gmm", reads = [#tile.region<@recv[0, 1]>, #tile.region<@w_up[0]>], writes = [#tile.region<@h[0, 1]>], base = array<i64: 128, 256, 64>, team = #tile.team<aic[0:24]>}> : () -> ()
// GENERIC-NEXT:    "npu.set_flag"() <{flag = #npu.flag<@h_ready[0, 1]>, team = #tile.team<aic[0:24]>}> : () -> ()
// GENERIC-NEXT:    "npu.barrier"() <{scope = "world", launch, team = #tile.team<aic[0:24]>}> : () -> ()
// GENERIC-NEXT:    "npu.barrier"() <{scope = "rank", team = #tile.team<aiv[0:24]>}> {note = "kept"} : () -> ()
npu.program @flat on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @recv routed 32 x 64 bf16 workspace symmetric formula "8 x 2 x 2"
  npu.event @recv_ready 2 x 2
  npu.event @h_ready 1 x 2 ids [4, -1]
  npu.put_mem_signal dispatch[0, 1] @x -> @recv[0, 1] scale chunks 4 via put signal @recv_ready[0, 1] on aiv[0:24]
  npu.put_mem_signal combine[0, 1] @y[0, 1] -> @back[0, 1] chunks 1 via collective
  npu.wait_flag @recv_ready[0, 1] >= 4 on aic[0:24]
  npu.task gmm (@recv[0, 1], @w_up[0]) -> (@h[0, 1]) base [128, 256, 64] on aic[0:24]
  npu.set_flag @h_ready[0, 1] on aic[0:24]
  npu.barrier world launch on aic[0:24]
  npu.barrier rank on aiv[0:24] {note = "kept"}
}

// -----

// Outlined: one queue for each team, whose instructions name no team.
// CHECK-LABEL: npu.program @outlined
// CHECK-NEXT:    npu.queue aic[0:24] {
// CHECK-NEXT:      npu.wait_flag @recv_ready[0, 0] >= 4
// CHECK-NEXT:      npu.task relu (@h) -> (@a[*, 0]) base [128]
// CHECK-NEXT:      npu.task swiglu_oai (@h) -> (@a[*, 1]) params {alpha = 1.000000e+00 : f64} base [128]
// CHECK-NEXT:    }
// CHECK-NEXT:    npu.queue aiv[24:48] {
// CHECK-NEXT:      npu.set_flag @recv_ready[0, 0]
// CHECK-NEXT:      npu.barrier world
// CHECK-NEXT:    } {note = "kept"}
// GENERIC-LABEL: sym_name = "outlined"
// GENERIC-NEXT:    "npu.queue"() <{team = #tile.team<aic[0:24]>}> ({
// GENERIC-NEXT:      "npu.wait_flag"() <{flag = #npu.flag<@recv_ready[0, 0]>, need = 4 : i64}> : () -> ()
// GENERIC:         }) {note = "kept"} : () -> ()
npu.program @outlined on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  npu.queue aic[0:24] {
    npu.wait_flag @recv_ready[0, 0] >= 4
    npu.task relu (@h) -> (@a[*, 0]) base [128]
    npu.task swiglu_oai (@h) -> (@a[*, 1]) params {alpha = 1.0} base [128]
  }
  npu.queue aiv[24:48] {
    npu.set_flag @recv_ready[0, 0]
    npu.barrier world
  } {note = "kept"}
}

// -----

// CHECK-LABEL: "test.op"() {flag = #npu.flag<@"odd name"[3, 0]>}
// GENERIC-LABEL: "test.op"()
"test.op"() {flag = #npu.flag<@"odd name"[3, 0]>} : () -> ()

// -----

// CHECK:   npu.put_mem_signal dispatch[0, 1] @d -> @dy[0, 1] scale dot (@back[0, 1], @dr[0, 1]) chunks 2 via put signal @dy_ready[0, 1] on aiv[0:24]
// GENERIC: dot = [#tile.region<@back[0, 1]>, #tile.region<@dr[0, 1]>]
npu.put_mem_signal dispatch[0, 1] @d -> @dy[0, 1] scale dot(@back[0, 1], @dr[0, 1]) chunks 2 via put signal @dy_ready[0, 1] on aiv[0:24]
