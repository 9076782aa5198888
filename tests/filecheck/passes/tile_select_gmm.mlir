// RUN: xdsl-opt %s -p tile-select-gmm --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'tile-select-gmm{base=64,128,64}' --split-input-file | filecheck %s --check-prefix=OPTION

// Only gmm tasks get a base tile. A problem of one fractal has one tile that is not larger
// than it.
// CHECK-LABEL: tile.program @chosen on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0, 1>] row_chunks 1 {
// CHECK: %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [16, 16, 16]
// CHECK-NEXT: %1 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) after(%0)
// CHECK-NEXT: }
// OPTION-LABEL: tile.program @chosen on "ascend_a3" mode "forward" policy "list"
// OPTION-SAME: groups [array<i64: 0, 1>] row_chunks 1 {
// OPTION: %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [64, 128, 64]
// OPTION-NEXT: %1 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) after(%0)
// OPTION-NEXT: }
#spec = {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @chosen on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0, 1>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
  %1 = tile.task relu (@h[0, 0]) -> (@a[0, 0]) after(%0)
}

// -----

// A pin is used as it is, for all.
// CHECK-LABEL: tile.program @pinned on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [32, 64, 64]
// CHECK-NEXT: }
// OPTION-LABEL: tile.program @pinned on "ascend_a3" mode "forward" policy "list"
// OPTION-SAME: groups [array<i64: 0>] row_chunks 1 {
// OPTION: %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [64, 128, 64]
// OPTION-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {base_tile = array<i64: 32, 64, 64>}, routing = {kind = "balanced"}}
tile.program @pinned on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
}

// -----

// An earlier choice is replaced.
// CHECK-LABEL: tile.program @again on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [16, 16, 16]
// CHECK-NEXT: }
// OPTION-LABEL: tile.program @again on "ascend_a3" mode "forward" policy "list"
// OPTION-SAME: groups [array<i64: 0>] row_chunks 1 {
// OPTION: %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [64, 128, 64]
// OPTION-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @again on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @recv routed 32 x 16 bf16 workspace
  tile.buffer @w_up weight 2 x 16 x 16 bf16 weight
  tile.buffer @h routed 32 x 16 bf16 workspace
  %0 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) base [128, 256, 64]
}
