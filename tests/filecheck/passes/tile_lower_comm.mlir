// RUN: xdsl-opt %s -p tile-lower-comm --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'tile-lower-comm{chunks=2}' --split-input-file | filecheck %s --check-prefix=OPTION

// A dispatch becomes a put, and an await on which the user depends; the buffer that other
// ranks write becomes symmetric. Team and scale stay.
// CHECK-LABEL: tile.program @dispatch on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: tile.buffer @x token 8 x 64 bf16 input
// CHECK-NEXT: tile.buffer @recv routed 32 x 64 bf16 workspace symmetric
// CHECK-NEXT: tile.buffer @back slot 16 x 64 bf16 workspace
// CHECK-NEXT: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] scale chunks 1 via put on aiv[0:24]
// CHECK-NEXT: %1 = tile.await(%0)
// CHECK-NEXT: %2 = tile.task relu (@recv[0, 0]) -> (@h[0, 0]) after(%1) on aiv[24:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @dispatch on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] scale on aiv[0:24]
  %1 = tile.task relu (@recv[0, 0]) -> (@h[0, 0]) after(%0) on aiv[24:48]
}

// -----

// Exchanges with the same users share one await, after the last of them.
// CHECK-LABEL: tile.program @joined on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.put combine[0, 0] @y[0, 0] -> @back[0, 0] chunks 1 via put
// CHECK-NEXT: %1 = tile.put combine[1, 0] @y[1, 0] -> @back[1, 0] chunks 1 via put
// CHECK-NEXT: %2 = tile.await(%0, %1)
// CHECK-NEXT: %3 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put
// CHECK-NEXT: %4 = tile.await(%3)
// CHECK-NEXT: %5 = tile.task reduce (@back) -> (@out[*, 0]) after(%2)
// CHECK-NEXT: %6 = tile.task relu (@recv[0, 0]) -> (@h[0, 0]) after(%4)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @joined on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
  %0 = tile.exchange combine[0, 0] @y[0, 0] -> @back[0, 0]
  %1 = tile.exchange combine[1, 0] @y[1, 0] -> @back[1, 0]
  %2 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %3 = tile.task reduce (@back) -> (@out[*, 0]) after(%0, %1)
  %4 = tile.task relu (@recv[0, 0]) -> (@h[0, 0]) after(%2)
}

// -----

// A combine right after a dispatch waits for its rows before it sends them back; what no
// task reads is awaited too.
// CHECK-LABEL: tile.program @echo on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put
// CHECK-NEXT: %1 = tile.await(%0)
// CHECK-NEXT: %2 = tile.put combine[0, 0] @recv[0, 0] -> @back[0, 0] chunks 1 via put after(%1)
// CHECK-NEXT: %3 = tile.await(%2)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @echo on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.exchange combine[0, 0] @recv[0, 0] -> @back[0, 0] after(%0)
}

// -----

// A task that needs rows of two dispatches and of another task waits once for each.
// CHECK-LABEL: tile.program @two on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.task relu (@z) -> (@v)
// CHECK-NEXT: %1 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put
// CHECK-NEXT: %2 = tile.put dispatch[0, 0] @v -> @recv2[0, 0] chunks 1 via put after(%0)
// CHECK-NEXT: %3 = tile.await(%1, %2)
// CHECK-NEXT: %4 = tile.task add (@recv[0, 0], @recv2[0, 0]) -> (@h[0, 0]) after(%3, %0)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @two on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
  %0 = tile.task relu (@z) -> (@v)
  %1 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %2 = tile.exchange dispatch[0, 0] @v -> @recv2[0, 0] after(%0)
  %3 = tile.task add (@recv[0, 0], @recv2[0, 0]) -> (@h[0, 0]) after(%1, %0, %2)
}

// -----

// Policy serial leaves transport to the host: one collective, no signals.
// CHECK-LABEL: tile.program @serial on "ascend_a3" mode "forward" policy "serial"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via collective
// CHECK-NEXT: %1 = tile.await(%0)
// CHECK-NEXT: %2 = tile.task relu (@recv[0, 0]) -> (@h[0, 0]) after(%1)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @serial on "ascend_a3" mode "forward" policy "serial" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task relu (@recv[0, 0]) -> (@h[0, 0]) after(%0)
}

// -----

// Chunks come from the policy (64 rows a put here) ...
// CHECK-LABEL: tile.program @many_rows on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 5 via put
// CHECK-NEXT: %1 = tile.await(%0)
// CHECK-NEXT: }
// OPTION-LABEL: tile.program @many_rows on "ascend_a3" mode "forward" policy "list"
// OPTION-SAME: groups [array<i64: 0>] row_chunks 1 {
// OPTION: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 2 via put
// OPTION-NEXT: %1 = tile.await(%0)
// OPTION-NEXT: }
#spec = {tokens = array<i64: 300>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @many_rows on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
}

// -----

// ... or from a pin.
// CHECK-LABEL: tile.program @pinned on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 3 via put
// CHECK-NEXT: %1 = tile.await(%0)
// CHECK-NEXT: }
// OPTION-LABEL: tile.program @pinned on "ascend_a3" mode "forward" policy "list"
// OPTION-SAME: groups [array<i64: 0>] row_chunks 1 {
// OPTION: %0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 2 via put
// OPTION-NEXT: %1 = tile.await(%0)
// OPTION-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {row_chunks = 3 : i64}, routing = {kind = "balanced"}}
tile.program @pinned on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @recv routed 32 x 64 bf16 workspace
  tile.buffer @back slot 16 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
}

// -----

// Where the routing brings more rows than the mean of 100, the put is cut finer, at most
// into a piece for each core of its team: rank 0 sends 280 rows to the first expert of
// the next rank, and these come back. The other puts to it are cut as in a balanced layer.
// CHECK-LABEL: tile.program @hot on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
// CHECK: tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 2 via put on aiv[0:24]
// CHECK: tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 24 via put on aiv[0:24]
// CHECK: tile.put dispatch[1, 0] @x -> @recv[1, 0] chunks 2 via put on aiv[0:24]
// CHECK: tile.put dispatch[1, 1] @x -> @recv[1, 1] chunks 10 via put on aiv[0:24]
// CHECK: tile.put combine[0, 1] @recv[0, 1] -> @back[0, 1] chunks 8 via put after(%2) on aiv[0:8]
// CHECK: }
// OPTION-LABEL: tile.program @hot on "ascend_a3" mode "forward" policy "list"
// OPTION: tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 2 via put on aiv[0:24]
#spec = {tokens = array<i64: 400, 400>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 1 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "counts", counts = [array<i64: 40, 40, 280, 40>, array<i64: 100, 100, 100, 100>]}}
tile.program @hot on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
  tile.buffer @x token 400 x 64 bf16 input
  tile.buffer @recv routed 800 x 64 bf16 workspace
  tile.buffer @back slot 400 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:24]
  %1 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1] on aiv[0:24]
  %2 = tile.exchange dispatch[1, 0] @x -> @recv[1, 0] on aiv[0:24]
  %3 = tile.exchange dispatch[1, 1] @x -> @recv[1, 1] on aiv[0:24]
  %4 = tile.exchange combine[0, 1] @recv[0, 1] -> @back[0, 1] after(%1) on aiv[0:8]
}

// -----

// No core drives a collective: skew does not matter to it.
// CHECK-LABEL: tile.program @hot_serial on "ascend_a3" mode "forward" policy "serial"
// CHECK: tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via collective
#spec = {tokens = array<i64: 400, 400>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 1 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "counts", counts = [array<i64: 40, 40, 280, 40>, array<i64: 100, 100, 100, 100>]}}
tile.program @hot_serial on "ascend_a3" mode "forward" policy "serial" #spec groups [array<i64: 0, 1>] row_chunks 1 {
  tile.buffer @x token 400 x 64 bf16 input
  tile.buffer @recv routed 800 x 64 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:48]
}

// -----

// Two experts' rows for one other rank are two puts: most of the 24 cores would have
// none. Policy list cuts them, and own rows, until the team is filled; an exchange
// without a team stays as the policy says.
// CHECK-LABEL: tile.program @few on "ascend_a3" mode "forward" policy "list"
// CHECK: tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 11 via put on aiv[0:24]
// CHECK: tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 11 via put on aiv[0:24]
// CHECK: tile.put dispatch[1, 0] @x -> @recv[1, 0] chunks 11 via put on aiv[0:24]
// CHECK: tile.put dispatch[1, 1] @x -> @recv[1, 1] chunks 1 via put
// OPTION-LABEL: tile.program @few on "ascend_a3" mode "forward" policy "list"
// OPTION: tile.put dispatch[0, 1] @x -> @recv[0, 1] chunks 2 via put on aiv[0:24]
#spec = {tokens = array<i64: 128, 128>, hidden = 2048 : i64, intermediate = 64 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @few on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
  tile.buffer @x token 128 x 2048 bf16 input
  tile.buffer @recv routed 256 x 2048 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:24]
  %1 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1] on aiv[0:24]
  %2 = tile.exchange dispatch[1, 0] @x -> @recv[1, 0] on aiv[0:24]
  %3 = tile.exchange dispatch[1, 1] @x -> @recv[1, 1]
}

// -----

// The paper's policy keeps its rows per put.
// CHECK-LABEL: tile.program @few_paper on "ascend_a3" mode "forward" policy "paper"
// CHECK: tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put on aiv[0:48]
#spec = {tokens = array<i64: 128, 128>, hidden = 2048 : i64, intermediate = 64 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @few_paper on "ascend_a3" mode "forward" policy "paper" #spec groups [array<i64: 0, 1>] row_chunks 1 {
  tile.buffer @x token 128 x 2048 bf16 input
  tile.buffer @recv routed 256 x 2048 bf16 workspace
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:48]
}
