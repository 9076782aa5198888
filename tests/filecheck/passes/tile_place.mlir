// RUN: xdsl-opt %s -p tile-place --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'tile-place{aic=4 comm-aiv=6 vector-aiv=32}' --split-input-file | filecheck %s --check-prefix=OPTIONS

// Policy list: communication and vector work have half of the AIVs each; a vector tile is
// an equal share of the 96 expected rows.
// CHECK-LABEL: tile.program @list on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:24]
// CHECK-NEXT: %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0) on aic[0:24]
// CHECK-NEXT: %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [4] after(%1) on aiv[24:48]
// CHECK-NEXT: }
// OPTIONS-LABEL: tile.program @list on "ascend_a3" mode "forward" policy "list"
// OPTIONS-SAME: groups [array<i64: 0>] row_chunks 1 {
// OPTIONS-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:6]
// OPTIONS-NEXT: %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0) on aic[0:4]
// OPTIONS-NEXT: %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [3] after(%1) on aiv[6:38]
// OPTIONS-NEXT: }
#spec = {tokens = array<i64: 96>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @list on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0)
  %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%1)
}

// -----

// Policy paper: both share all AIVs, in tiles of 128 rows. A base that is there stays.
// CHECK-LABEL: tile.program @paper on "ascend_a3" mode "forward" policy "paper"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:48]
// CHECK-NEXT: %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0) on aic[0:24]
// CHECK-NEXT: %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [128] after(%1) on aiv[0:48]
// CHECK-NEXT: %3 = tile.task relu (@a[0, 0]) -> (@b[0, 0]) base [7] after(%2) on aiv[0:48]
// CHECK-NEXT: }
// OPTIONS-LABEL: tile.program @paper on "ascend_a3" mode "forward" policy "paper"
// OPTIONS-SAME: groups [array<i64: 0>] row_chunks 1 {
// OPTIONS-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:6]
// OPTIONS-NEXT: %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0) on aic[0:4]
// OPTIONS-NEXT: %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [128] after(%1) on aiv[6:38]
// OPTIONS-NEXT: %3 = tile.task relu (@a[0, 0]) -> (@b[0, 0]) base [7] after(%2) on aiv[6:38]
// OPTIONS-NEXT: }
#spec = {tokens = array<i64: 96>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @paper on "ascend_a3" mode "forward" policy "paper" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0)
  %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%1)
  %3 = tile.task relu (@a[0, 0]) -> (@b[0, 0]) base [7] after(%2)
}

// -----

// Without communication, vector work has all AIVs; a token part is shared evenly.
// CHECK-LABEL: tile.program @no_comm on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 2 {
// CHECK-NEXT: %0 = tile.task relu (@x[*, 0]) -> (@a[*, 0]) base [1] on aiv[0:48]
// CHECK-NEXT: }
// OPTIONS-LABEL: tile.program @no_comm on "ascend_a3" mode "forward" policy "list"
// OPTIONS-SAME: groups [array<i64: 0>] row_chunks 2 {
// OPTIONS-NEXT: %0 = tile.task relu (@x[*, 0]) -> (@a[*, 0]) base [2] on aiv[0:32]
// OPTIONS-NEXT: }
#spec = {tokens = array<i64: 96>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @no_comm on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 2 {
  %0 = tile.task relu (@x[*, 0]) -> (@a[*, 0])
}

// -----

// Pins choose the teams, also under a policy that would share.
// CHECK-LABEL: tile.program @pinned on "ascend_a3" mode "forward" policy "paper"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:8]
// CHECK-NEXT: %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0) on aic[0:20]
// CHECK-NEXT: %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [128] after(%1) on aiv[8:48]
// CHECK-NEXT: }
// OPTIONS-LABEL: tile.program @pinned on "ascend_a3" mode "forward" policy "paper"
// OPTIONS-SAME: groups [array<i64: 0>] row_chunks 1 {
// OPTIONS-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:6]
// OPTIONS-NEXT: %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0) on aic[0:4]
// OPTIONS-NEXT: %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [128] after(%1) on aiv[6:38]
// OPTIONS-NEXT: }
#spec = {tokens = array<i64: 96>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {aic = 20 : i64, comm_aiv = 8 : i64, vector_aiv = 40 : i64}, routing = {kind = "balanced"}}
tile.program @pinned on "ascend_a3" mode "forward" policy "paper" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0)
  %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%1)
}

// -----

// One pin leaves the rest to the other team.
// CHECK-LABEL: tile.program @one_pin on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] on aiv[0:8]
// CHECK-NEXT: %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0) on aic[0:24]
// CHECK-NEXT: %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) base [3] after(%1) on aiv[8:48]
// CHECK-NEXT: }
#spec = {tokens = array<i64: 96>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {comm_aiv = 8 : i64}, routing = {kind = "balanced"}}
tile.program @one_pin on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
  %1 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64] after(%0)
  %2 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%1)
}
