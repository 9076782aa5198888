// RUN: %roundtrip
// RUN: %generic

// Buffers of all spaces and roles; weights count experts, the others rows.
// CHECK-LABEL: tile.program @buffers on "ascend_a3" mode "forward" policy "list" {hidden = 64 : i64} groups [array<i64: 0>, array<i64: 1, 2>] row_chunks 1 {
// CHECK-NEXT:    tile.buffer @x token 8 x 64 bf16 input
// CHECK-NEXT:    tile.buffer @router slot 16 x 1 f32 input formula "tokens 8 x top_k 2"
// CHECK-NEXT:    tile.buffer @w_up weight 2 x 64 x 32 f16 weight
// CHECK-NEXT:    tile.buffer @recv routed 48 x 64 bf16 workspace symmetric formula "8 x 2 x 3"
// CHECK-NEXT:    tile.buffer @back slot 16 x 64 bf16 workspace symmetric
// CHECK-NEXT:    tile.buffer @out token 8 x 64 bf16 output {note = "kept"}
// CHECK-NEXT:  }
// GENERIC-LABEL: "tile.program"()
// GENERIC-SAME:  <{sym_name = "buffers", machine = "ascend_a3", mode = "forward", policy = "list", spec = {hidden = 64 : i64}, groups = [array<i64: 0>, array<i64: 1, 2>], row_chunks = 1 : i64}> ({
// GENERIC-NEXT:    "tile.buffer"() <{sym_name = "x", space = "token", rows = 8 : i64, cols = 64 : i64, element = bf16, role = "input"}> : () -> ()
// GENERIC:         "tile.buffer"() <{sym_name = "w_up", space = "weight", experts = 2 : i64, rows = 64 : i64, cols = 32 : i64, element = f16, role = "weight"}> : () -> ()
// GENERIC-NEXT:    "tile.buffer"() <{sym_name = "recv", space = "routed", rows = 48 : i64, cols = 64 : i64, element = bf16, role = "workspace", symmetric, formula = "8 x 2 x 3"}> : () -> ()
tile.program @buffers on "ascend_a3" mode "forward" policy "list" {hidden = 64 : i64} groups [array<i64: 0>, array<i64: 1, 2>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @router slot 16 x 1 f32 input formula "tokens 8 x top_k 2"
  tile.buffer @w_up weight 2 x 64 x 32 f16 weight
  tile.buffer @recv routed 48 x 64 bf16 workspace symmetric formula "8 x 2 x 3"
  tile.buffer @back slot 16 x 64 bf16 workspace symmetric
  tile.buffer @out token 8 x 64 bf16 output {note = "kept"}
}

// -----

// Every optional part of a task, alone and together. A region names all of a buffer, all
// of an expert, one part, or one part of every expert.
// CHECK-LABEL: tile.program @tasks
// CHECK-NEXT:    %0 = tile.task gmm (@recv[0, 1], @w_up[0]) -> (@h[0, 1])
// CHECK-NEXT:    %1 = tile.task gmm (@recv[1, 1], @w_up[1]) -> (@h[1, 1]) base [128, 256, 64]
// CHECK-NEXT:    %2 = tile.task relu (@h[0, 1]) -> (@a[0, 1]) after(%0)
// CHECK-NEXT:    %3 = tile.task relu (@h[1, 1]) -> (@a[1, 1]) on aiv[0:48]
// CHECK-NEXT:    %4 = tile.task relu (@h) -> (@b) phase 3
// CHECK-NEXT:    %5 = tile.task swiglu_oai (@h[*, 1]) -> (@c[*, 1], @d) params {alpha = 1.702000e+00 : f64, limit = 7.000000e+00 : f64} base [16] after(%0, %1) on aiv[24:48] phase 0 {note = "kept"}
// GENERIC-LABEL: sym_name = "tasks"
// GENERIC-NEXT:    %0 = "tile.task"() <{op = "gmm", reads = [#tile.region<@recv[0, 1]>, #tile.region<@w_up[0]>], writes = [#tile.region<@h[0, 1]>]}> : () -> !tile.token
// GENERIC:         %2 = "tile.task"(%0) <{op = "relu", reads = [#tile.region<@h[0, 1]>], writes = [#tile.region<@a[0, 1]>]}> : (!tile.token) -> !tile.token
// GENERIC:         %5 = "tile.task"(%0, %1) <{op = "swiglu_oai", reads = [#tile.region<@h[*, 1]>], writes = [#tile.region<@c[*, 1]>, #tile.region<@d>], params = {alpha = 1.702000e+00 : f64, limit = 7.000000e+00 : f64}, base = array<i64: 16>, team = #tile.team<aiv[24:48]>, phase = 0 : i64}> {note = "kept"} : (!tile.token, !tile.token) -> !tile.token
tile.program @tasks on "ascend_a3" mode "forward" policy "serial" {} groups [array<i64: 0>] row_chunks 2 {
  %0 = tile.task gmm (@recv[0, 1], @w_up[0]) -> (@h[0, 1])
  %1 = tile.task gmm (@recv[1, 1], @w_up[1, *]) -> (@h[1, 1]) base [128, 256, 64]
  %2 = tile.task relu (@h[0, 1]) -> (@a[0, 1]) after (%0)
  %3 = tile.task relu (@h[1, 1]) -> (@a[1, 1]) on aiv[0:48]
  %4 = tile.task relu (@h[*, *]) -> (@b) phase 3
  %5 = tile.task swiglu_oai (@h[*, 1]) -> (@c[*, 1], @d) params {alpha = 1.702, limit = 7.0} base [16] after(%0, %1) on aiv[24:48] phase 0 {note = "kept"}
}

// -----

// An exchange as a whole; puts and awaits once lowered.
// CHECK-LABEL: tile.program @exchanges
// CHECK-NEXT:    %0 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1] scale on aiv[0:24]
// CHECK-NEXT:    %1 = tile.exchange combine[0, 1] @y[0, 1] -> @back[0, 1] after(%0) phase 2
// CHECK-NEXT:    %2 = tile.put dispatch[1, 0] @x -> @recv[1, 0] scale chunks 4 via put on aiv[0:24]
// CHECK-NEXT:    %3 = tile.put combine[1, 0] @y[1, 0] -> @back[1, 0] chunks 1 via collective after(%1)
// CHECK-NEXT:    %4 = tile.await(%2, %3)
// CHECK-NEXT:    %5 = tile.await(%2) {note = "kept"}
// GENERIC-LABEL: sym_name = "exchanges"
// GENERIC-NEXT:    %0 = "tile.exchange"() <{kind = "dispatch", expert = 0 : i64, group = 1 : i64, source = #tile.region<@x>, dest = #tile.region<@recv[0, 1]>, scale, team = #tile.team<aiv[0:24]>}> : () -> !tile.token
// GENERIC:         %2 = "tile.put"() <{kind = "dispatch", expert = 1 : i64, group = 0 : i64, source = #tile.region<@x>, dest = #tile.region<@recv[1, 0]>, scale, chunks = 4 : i64, transport = "put", team = #tile.team<aiv[0:24]>}> : () -> !tile.signal
// GENERIC:         %4 = "tile.await"(%2, %3) : (!tile.signal, !tile.signal) -> !tile.token
tile.program @exchanges on "ascend_a3" mode "forward" policy "paper" {} groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1] scale on aiv[0:24]
  %1 = tile.exchange combine[0, 1] @y[0, 1] -> @back[0, 1] after(%0) phase 2
  %2 = tile.put dispatch[1, 0] @x -> @recv[1, 0] scale chunks 4 via put on aiv[0:24]
  %3 = tile.put combine[1, 0] @y[1, 0] -> @back[1, 0] chunks 1 via collective after(%1)
  %4 = tile.await(%2, %3)
  %5 = tile.await(%2) {note = "kept"}
}

// -----

// Attributes also stand alone. A name that is no word keeps its quotes.
// CHECK-LABEL: "test.op"() {region = #tile.region<@"odd name"[0, 2]>, all = #tile.region<@x>, part = #tile.region<@x[*, 3]>, team = #tile.team<aic[4:24]>}
// GENERIC-LABEL: "test.op"()
"test.op"() {region = #tile.region<@"odd name"[0, 2]>, all = #tile.region<@x[*, *]>, part = #tile.region<@x[*, 3]>, team = #tile.team<aic[4:24]>} : () -> ()

// -----

// A dispatch of gradients scales rows and takes the dot product with the slots' rows.
// CHECK:      %{{.*}} = tile.exchange dispatch[0, 1] @d -> @dy[0, 1] scale dot (@back[0, 1], @dr[0, 1])
// CHECK-NEXT: %{{.*}} = tile.put dispatch[0, 1] @d -> @dy[0, 1] scale dot (@back[0, 1], @dr[0, 1]) chunks 2 via put
// GENERIC:    dot = [#tile.region<@back[0, 1]>, #tile.region<@dr[0, 1]>]
%0 = tile.exchange dispatch[0, 1] @d -> @dy[0, 1] scale dot(@back[0, 1], @dr[0, 1])
%1 = tile.put dispatch[0, 1] @d -> @dy[0, 1] scale dot(@back[0, 1], @dr[0, 1]) chunks 2 via put
