// RUN: xdsl-opt %s -p tile-schedule --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'tile-schedule{policy=serial}' --split-input-file | filecheck %s --check-prefix=SERIAL
// RUN: xdsl-opt %s -p 'tile-schedule{policy=paper}' --split-input-file | filecheck %s --check-prefix=PAPER

// Policy list sends own rows (part 0) of all experts first and starts a task when what it
// needs is there; an await stands right before its first user. The other policies go
// operator by operator, expert by expert.
// CHECK-LABEL: tile.program @dag on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
// CHECK: tile.put dispatch[0, 0] @x
// CHECK: tile.put dispatch[1, 0] @x
// CHECK: tile.put dispatch[0, 1] @x
// CHECK: tile.put dispatch[1, 1] @x
// CHECK: tile.task gmm (@recv[1, 1], @w[1]) -> (@h[1, 1]) base [16, 16, 64]
// CHECK: tile.task relu (@h[1, 1])
// CHECK-NEXT: }
// SERIAL-LABEL: tile.program @dag on "ascend_a3" mode "forward" policy "serial"
// SERIAL-SAME: groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
// SERIAL: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:24] phase 0
// SERIAL-NEXT: %1 = tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 1 via put on aiv[0:24] phase 0
// SERIAL-NEXT: %2 = tile.put dispatch[1, 0] @x -> @recv[1, 0] chunks 1 via put on aiv[0:24] phase 0
// SERIAL-NEXT: %3 = tile.put dispatch[1, 1] @x -> @recv[1, 1] chunks 1 via put on aiv[0:24] phase 0
// SERIAL-NEXT: %4 = tile.await(%0)
// SERIAL-NEXT: %5 = tile.task gmm (@recv[0, 0], @w[0]) -> (@h[0, 0]) base [16, 16, 64] after(%4) on aic[0:24] phase 1
// SERIAL-NEXT: %6 = tile.await(%1)
// SERIAL-NEXT: %7 = tile.task gmm (@recv[0, 1], @w[0]) -> (@h[0, 1]) base [16, 16, 64] after(%6) on aic[0:24] phase 1
// SERIAL-NEXT: %8 = tile.await(%2)
// SERIAL-NEXT: %9 = tile.task gmm (@recv[1, 0], @w[1]) -> (@h[1, 0]) base [16, 16, 64] after(%8) on aic[0:24] phase 1
// SERIAL-NEXT: %10 = tile.await(%3)
// SERIAL-NEXT: %11 = tile.task gmm (@recv[1, 1], @w[1]) -> (@h[1, 1]) base [16, 16, 64] after(%10) on aic[0:24] phase 1
// SERIAL-NEXT: %12 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) base [1] after(%5) on aiv[24:48] phase 2
// SERIAL-NEXT: %13 = tile.task relu (@h[0, 1]) -> (@a[0, 1]) base [1] after(%7) on aiv[24:48] phase 2
// SERIAL-NEXT: %14 = tile.task relu (@h[1, 0]) -> (@a[1, 0]) base [1] after(%9) on aiv[24:48] phase 2
// SERIAL-NEXT: %15 = tile.task relu (@h[1, 1]) -> (@a[1, 1]) base [1] after(%11) on aiv[24:48] phase 2
// SERIAL-NEXT: }
// PAPER-LABEL: tile.program @dag on "ascend_a3" mode "forward" policy "paper"
// PAPER-SAME: groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
// PAPER: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:24]
// PAPER-NEXT: %1 = tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 1 via put on aiv[0:24]
// PAPER-NEXT: %2 = tile.put dispatch[1, 0] @x -> @recv[1, 0] chunks 1 via put on aiv[0:24]
// PAPER-NEXT: %3 = tile.put dispatch[1, 1] @x -> @recv[1, 1] chunks 1 via put on aiv[0:24]
// PAPER-NEXT: %4 = tile.await(%0)
// PAPER-NEXT: %5 = tile.task gmm (@recv[0, 0], @w[0]) -> (@h[0, 0]) base [16, 16, 64] after(%4) on aic[0:24]
// PAPER-NEXT: %6 = tile.await(%1)
// PAPER-NEXT: %7 = tile.task gmm (@recv[0, 1], @w[0]) -> (@h[0, 1]) base [16, 16, 64] after(%6) on aic[0:24]
// PAPER-NEXT: %8 = tile.await(%2)
// PAPER-NEXT: %9 = tile.task gmm (@recv[1, 0], @w[1]) -> (@h[1, 0]) base [16, 16, 64] after(%8) on aic[0:24]
// PAPER-NEXT: %10 = tile.await(%3)
// PAPER-NEXT: %11 = tile.task gmm (@recv[1, 1], @w[1]) -> (@h[1, 1]) base [16, 16, 64] after(%10) on aic[0:24]
// PAPER-NEXT: %12 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) base [1] after(%5) on aiv[24:48]
// PAPER-NEXT: %13 = tile.task relu (@h[0, 1]) -> (@a[0, 1]) base [1] after(%7) on aiv[24:48]
// PAPER-NEXT: %14 = tile.task relu (@h[1, 0]) -> (@a[1, 0]) base [1] after(%9) on aiv[24:48]
// PAPER-NEXT: %15 = tile.task relu (@h[1, 1]) -> (@a[1, 1]) base [1] after(%11) on aiv[24:48]
// PAPER-NEXT: }
#spec = {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @dag on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:24]
  %1 = tile.await(%0)
  %2 = tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 1 via put on aiv[0:24]
  %3 = tile.await(%2)
  %4 = tile.put dispatch[1, 0] @x -> @recv[1, 0] chunks 1 via put on aiv[0:24]
  %5 = tile.await(%4)
  %6 = tile.put dispatch[1, 1] @x -> @recv[1, 1] chunks 1 via put on aiv[0:24]
  %7 = tile.await(%6)
  %8 = tile.task gmm (@recv[0, 0], @w[0]) -> (@h[0, 0]) base [16, 16, 64] after(%1) on aic[0:24]
  %9 = tile.task gmm (@recv[0, 1], @w[0]) -> (@h[0, 1]) base [16, 16, 64] after(%3) on aic[0:24]
  %10 = tile.task gmm (@recv[1, 0], @w[1]) -> (@h[1, 0]) base [16, 16, 64] after(%5) on aic[0:24]
  %11 = tile.task gmm (@recv[1, 1], @w[1]) -> (@h[1, 1]) base [16, 16, 64] after(%7) on aic[0:24]
  %12 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) base [1] after(%8) on aiv[24:48]
  %13 = tile.task relu (@h[0, 1]) -> (@a[0, 1]) base [1] after(%9) on aiv[24:48]
  %14 = tile.task relu (@h[1, 0]) -> (@a[1, 0]) base [1] after(%10) on aiv[24:48]
  %15 = tile.task relu (@h[1, 1]) -> (@a[1, 1]) base [1] after(%11) on aiv[24:48]
}

// -----

// Policy serial numbers the kernels: one phase for an operator.
// CHECK-LABEL: tile.program @phases on "ascend_a3" mode "forward" policy "serial"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.task relu (@x) -> (@h[0, 0]) base [8] on aiv[0:48] phase 0
// CHECK-NEXT: %1 = tile.task relu (@x) -> (@h[1, 0]) base [8] on aiv[0:48] phase 0
// CHECK-NEXT: %2 = tile.task gmm (@h[0, 0], @w[0]) -> (@a[0, 0]) base [16, 16, 64] after(%0) on aic[0:24] phase 1
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @phases on "ascend_a3" mode "forward" policy "serial" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.task relu (@x) -> (@h[0, 0]) base [8] on aiv[0:48]
  %1 = tile.task gmm (@h[0, 0], @w[0]) -> (@a[0, 0]) base [16, 16, 64] after(%0) on aic[0:24]
  %2 = tile.task relu (@x) -> (@h[1, 0]) base [8] on aiv[0:48]
}

// -----

// An await that no task needs comes last.
// CHECK-LABEL: tile.program @last_await on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:24]
// CHECK-NEXT: %1 = tile.task relu (@x) -> (@h) base [8] on aiv[24:48]
// CHECK-NEXT: %2 = tile.await(%0)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @last_await on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
  tile.buffer @w weight 2 x 64 x 64 bf16 weight
  tile.buffer @h routed 32 x 64 bf16 workspace
  tile.buffer @a routed 32 x 64 bf16 workspace
  %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:24]
  %1 = tile.await(%0)
  %2 = tile.task relu (@x) -> (@h) base [8] on aiv[24:48]
}
