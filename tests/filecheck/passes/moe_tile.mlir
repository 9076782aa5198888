// RUN: xdsl-opt %s -p moe-tile --split-input-file | filecheck %s
// RUN: xdsl-opt %s -p 'moe-tile{policy=serial groups=1 row-chunks=2}' --split-input-file | filecheck %s --check-prefix=OPTIONS

// The standard layer, two groups: one task per (operator, expert, group). A gmm reads its
// rows aligned and its weight by expert; reduce reads everything and waits for all.
// CHECK-LABEL: tile.program @standard 
// CHECK-SAME: policy "list"
// CHECK-SAME: groups [array<i64: 0>, array<i64: 1>] row_chunks 1 {
// CHECK-NEXT: tile.buffer @x token 8 x 64 bf16 input
// CHECK-NEXT: tile.buffer @router slot 16 x 1 f32 input formula "tokens 8 x top_k 2"
// CHECK-NEXT: tile.buffer @w_up weight 2 x 64 x 64 bf16 weight
// CHECK-NEXT: tile.buffer @w_down weight 2 x 32 x 64 bf16 weight
// CHECK-NEXT: tile.buffer @recv routed 16 x 64 bf16 workspace formula "largest receiver of the routing table, rank 0 = 16"
// CHECK-NEXT: tile.buffer @h routed 16 x 64 bf16 workspace formula "largest receiver of the routing table, rank 0 = 16"
// CHECK-NEXT: tile.buffer @a routed 16 x 32 bf16 workspace formula "largest receiver of the routing table, rank 0 = 16"
// CHECK-NEXT: tile.buffer @y routed 16 x 64 bf16 workspace formula "largest receiver of the routing table, rank 0 = 16"
// CHECK-NEXT: tile.buffer @back slot 16 x 64 bf16 workspace formula "tokens 8 x top_k 2"
// CHECK-NEXT: tile.buffer @out token 8 x 64 bf16 output
// CHECK-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
// CHECK-NEXT: %1 = tile.exchange dispatch[0, 1] @x -> @recv[0, 1]
// CHECK-NEXT: %2 = tile.exchange dispatch[1, 0] @x -> @recv[1, 0]
// CHECK-NEXT: %3 = tile.exchange dispatch[1, 1] @x -> @recv[1, 1]
// CHECK-NEXT: %4 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) after(%0)
// CHECK-NEXT: %5 = tile.task gmm (@recv[0, 1], @w_up[0]) -> (@h[0, 1]) after(%1)
// CHECK-NEXT: %6 = tile.task gmm (@recv[1, 0], @w_up[1]) -> (@h[1, 0]) after(%2)
// CHECK-NEXT: %7 = tile.task gmm (@recv[1, 1], @w_up[1]) -> (@h[1, 1]) after(%3)
// CHECK-NEXT: %8 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%4)
// CHECK-NEXT: %9 = tile.task swiglu (@h[0, 1]) -> (@a[0, 1]) after(%5)
// CHECK-NEXT: %10 = tile.task swiglu (@h[1, 0]) -> (@a[1, 0]) after(%6)
// CHECK-NEXT: %11 = tile.task swiglu (@h[1, 1]) -> (@a[1, 1]) after(%7)
// CHECK-NEXT: %12 = tile.task gmm (@a[0, 0], @w_down[0]) -> (@y[0, 0]) after(%8)
// CHECK-NEXT: %13 = tile.task gmm (@a[0, 1], @w_down[0]) -> (@y[0, 1]) after(%9)
// CHECK-NEXT: %14 = tile.task gmm (@a[1, 0], @w_down[1]) -> (@y[1, 0]) after(%10)
// CHECK-NEXT: %15 = tile.task gmm (@a[1, 1], @w_down[1]) -> (@y[1, 1]) after(%11)
// CHECK-NEXT: %16 = tile.exchange combine[0, 0] @y[0, 0] -> @back[0, 0] after(%12)
// CHECK-NEXT: %17 = tile.exchange combine[0, 1] @y[0, 1] -> @back[0, 1] after(%13)
// CHECK-NEXT: %18 = tile.exchange combine[1, 0] @y[1, 0] -> @back[1, 0] after(%14)
// CHECK-NEXT: %19 = tile.exchange combine[1, 1] @y[1, 1] -> @back[1, 1] after(%15)
// CHECK-NEXT: %20 = tile.task reduce (@back, @router) -> (@out[*, 0]) after(%16, %17, %18, %19)
// CHECK-NEXT: }
// OPTIONS-LABEL: tile.program @standard 
// OPTIONS-SAME: policy "serial"
// OPTIONS-SAME: groups [array<i64: 0, 1>] row_chunks 2 {
// OPTIONS-NEXT: tile.buffer @x token 8 x 64 bf16 input
// OPTIONS-NEXT: tile.buffer @router slot 16 x 1 f32 input formula "tokens 8 x top_k 2"
// OPTIONS-NEXT: tile.buffer @w_up weight 2 x 64 x 64 bf16 weight
// OPTIONS-NEXT: tile.buffer @w_down weight 2 x 32 x 64 bf16 weight
// OPTIONS-NEXT: tile.buffer @recv routed 16 x 64 bf16 workspace formula "largest receiver of the routing table, rank 0 = 16"
// OPTIONS-NEXT: tile.buffer @h routed 16 x 64 bf16 workspace formula "largest receiver of the routing table, rank 0 = 16"
// OPTIONS-NEXT: tile.buffer @a routed 16 x 32 bf16 workspace formula "largest receiver of the routing table, rank 0 = 16"
// OPTIONS-NEXT: tile.buffer @y routed 16 x 64 bf16 workspace formula "largest receiver of the routing table, rank 0 = 16"
// OPTIONS-NEXT: tile.buffer @back slot 16 x 64 bf16 workspace formula "tokens 8 x top_k 2"
// OPTIONS-NEXT: tile.buffer @out token 8 x 64 bf16 output
// OPTIONS-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
// OPTIONS-NEXT: %1 = tile.exchange dispatch[1, 0] @x -> @recv[1, 0]
// OPTIONS-NEXT: %2 = tile.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0]) after(%0)
// OPTIONS-NEXT: %3 = tile.task gmm (@recv[1, 0], @w_up[1]) -> (@h[1, 0]) after(%1)
// OPTIONS-NEXT: %4 = tile.task swiglu (@h[0, 0]) -> (@a[0, 0]) after(%2)
// OPTIONS-NEXT: %5 = tile.task swiglu (@h[1, 0]) -> (@a[1, 0]) after(%3)
// OPTIONS-NEXT: %6 = tile.task gmm (@a[0, 0], @w_down[0]) -> (@y[0, 0]) after(%4)
// OPTIONS-NEXT: %7 = tile.task gmm (@a[1, 0], @w_down[1]) -> (@y[1, 0]) after(%5)
// OPTIONS-NEXT: %8 = tile.exchange combine[0, 0] @y[0, 0] -> @back[0, 0] after(%6)
// OPTIONS-NEXT: %9 = tile.exchange combine[1, 0] @y[1, 0] -> @back[1, 0] after(%7)
// OPTIONS-NEXT: %10 = tile.task reduce (@back, @router) -> (@out[*, 0]) after(%8, %9)
// OPTIONS-NEXT: %11 = tile.task reduce (@back, @router) -> (@out[*, 1]) after(%8, %9)
// OPTIONS-NEXT: }
#spec = {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {groups = 2 : i64}, routing = {kind = "balanced"}}
moe.layer @standard on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>, %router : !moe.slots<8x2x1xf32>, %w_up : tensor<2x64x64xbf16>, %w_down : tensor<2x32x64xbf16>):
  %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %h = moe.gmm %recv, %w_up : !moe.routed<2x?x64xbf16>, tensor<2x64x64xbf16> -> !moe.routed<2x?x64xbf16>
  %a = moe.swiglu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x32xbf16>
  %y = moe.gmm %a, %w_down : !moe.routed<2x?x32xbf16>, tensor<2x32x64xbf16> -> !moe.routed<2x?x64xbf16>
  %back = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  %out = moe.reduce %back, %router : !moe.slots<8x2x64xbf16>, !moe.slots<8x2x1xf32> -> tensor<8x64xbf16>
  moe.return %out : tensor<8x64xbf16>
}

// -----

// Without communication, rows are cut in parts, and each part depends on its own.
// CHECK-LABEL: tile.program @parts 
// CHECK-SAME: policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 2 {
// CHECK-NEXT: tile.buffer @x token 8 x 64 bf16 input
// CHECK-NEXT: tile.buffer @p token 8 x 64 bf16 input
// CHECK-NEXT: tile.buffer @s token 8 x 64 bf16 workspace
// CHECK-NEXT: tile.buffer @a token 8 x 32 bf16 output
// CHECK-NEXT: %0 = tile.task add (@x[*, 0], @p[*, 0]) -> (@s[*, 0])
// CHECK-NEXT: %1 = tile.task add (@x[*, 1], @p[*, 1]) -> (@s[*, 1])
// CHECK-NEXT: %2 = tile.task swiglu (@s[*, 0]) -> (@a[*, 0]) after(%0)
// CHECK-NEXT: %3 = tile.task swiglu (@s[*, 1]) -> (@a[*, 1]) after(%1)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {row_chunks = 2 : i64}, routing = {kind = "balanced"}}
moe.layer @parts on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>, %p : tensor<8x64xbf16>):
  %s = moe.add %x, %p : tensor<8x64xbf16>
  %a = moe.swiglu %s : tensor<8x64xbf16> -> tensor<8x32xbf16>
  moe.return %a : tensor<8x32xbf16>
}

// -----

// Router weights at the input: the dispatch scales, reduce reads no router.
// CHECK-LABEL: tile.program @scaled 
// CHECK-SAME: policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0] scale
// CHECK-NEXT: %1 = tile.exchange dispatch[1, 0] @x -> @recv[1, 0] scale
// CHECK-NEXT: %2 = tile.exchange combine[0, 0] @recv[0, 0] -> @back[0, 0] after(%0)
// CHECK-NEXT: %3 = tile.exchange combine[1, 0] @recv[1, 0] -> @back[1, 0] after(%1)
// CHECK-NEXT: %4 = tile.task reduce (@back) -> (@out[*, 0]) after(%2, %3)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @scaled on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>, %router : !moe.slots<8x2x1xf32>):
  %recv = moe.dispatch %x scale %router : !moe.slots<8x2x1xf32> : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %back = moe.combine %recv : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  %out = moe.reduce %back : !moe.slots<8x2x64xbf16> -> tensor<8x64xbf16>
  moe.return %out : tensor<8x64xbf16>
}

// -----

// Values without a name are called after their operator; names are used once.
// CHECK-LABEL: tile.program @names 
// CHECK-SAME: policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK-NEXT: tile.buffer @in token 8 x 64 bf16 input
// CHECK-NEXT: tile.buffer @sum token 8 x 64 bf16 input
// CHECK-NEXT: tile.buffer @sum2 token 8 x 64 bf16 workspace
// CHECK-NEXT: tile.buffer @sum3 token 8 x 64 bf16 output
// CHECK-NEXT: %0 = tile.task add (@in[*, 0], @sum[*, 0]) -> (@sum2[*, 0])
// CHECK-NEXT: %1 = tile.task add (@sum2[*, 0], @in[*, 0]) -> (@sum3[*, 0]) after(%0)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @names on "ascend_a3" mode "forward" #spec {
^bb0(%0 : tensor<8x64xbf16>, %sum : tensor<8x64xbf16>):
  %1 = moe.add %0, %sum : tensor<8x64xbf16>
  %2 = moe.add %1, %0 : tensor<8x64xbf16>
  moe.return %2 : tensor<8x64xbf16>
}

// -----

// Parameters of an operator ride along; a value used twice is one dependency.
// CHECK-LABEL: tile.program @twice 
// CHECK-SAME: policy "list"
// CHECK-SAME: groups [array<i64: 0>] row_chunks 1 {
// CHECK: %0 = tile.task swiglu_oai (@x[*, 0]) -> (@a[*, 0]) params {alpha = 1.500000e+00 : f64, limit = 6.000000e+00 : f64}
// CHECK-NEXT: %1 = tile.task add (@a[*, 0], @a[*, 0]) -> (@b[*, 0]) after(%0)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @twice on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>):
  %a = moe.swiglu_oai %x alpha 1.5 limit 6.0 : tensor<8x64xbf16> -> tensor<8x32xbf16>
  %b = moe.add %a, %a : tensor<8x32xbf16>
  moe.return %b : tensor<8x32xbf16>
}

// -----

// Three experts on two ranks: both programs hold two, the last of rank 1 stays empty. The
// flow ends in slots, which are the output.
// CHECK-LABEL: tile.program @uneven 
// CHECK-SAME: policy "list"
// CHECK-SAME: groups [array<i64: 0, 1>] row_chunks 1 {
// CHECK-NEXT: tile.buffer @x token 8 x 64 bf16 input
// CHECK-NEXT: tile.buffer @recv routed 21 x 64 bf16 workspace formula "largest receiver of the routing table, rank 0 = 21"
// CHECK-NEXT: tile.buffer @back slot 16 x 64 bf16 output formula "tokens 8 x top_k 2"
// CHECK-NEXT: %0 = tile.exchange dispatch[0, 0] @x -> @recv[0, 0]
// CHECK-NEXT: %1 = tile.exchange dispatch[1, 0] @x -> @recv[1, 0]
// CHECK-NEXT: %2 = tile.exchange combine[0, 0] @recv[0, 0] -> @back[0, 0] after(%0)
// CHECK-NEXT: %3 = tile.exchange combine[1, 0] @recv[1, 0] -> @back[1, 0] after(%1)
// CHECK-NEXT: }
#spec = {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 3 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {groups = 1 : i64}, routing = {kind = "balanced"}}
moe.layer @uneven on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>):
  %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %back = moe.combine %recv : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  moe.return %back : !moe.slots<8x2x64xbf16>
}
