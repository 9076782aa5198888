// RUN: xdsl-opt %s -p moe-derive-backward --split-input-file | filecheck %s

// In mode forward nothing changes.
// CHECK-LABEL: moe.layer @forward
// CHECK:         %a = moe.relu %p
// CHECK-NEXT:    moe.return %a :
moe.layer @forward on "ascend_a3" mode "forward" {} {
^bb0(%p: tensor<8x64xbf16>):
  %a = moe.relu %p : tensor<8x64xbf16> -> tensor<8x64xbf16>
  moe.return %a : tensor<8x64xbf16>
}

// -----

// The standard layer gives the seven nodes: dispatch, the pair of the second product,
// the activation, the pair of the first, combine; then the local sum. Forward values
// that gradients read become saved inputs, and x, which none reads, goes away.
// CHECK-LABEL: moe.layer @standard
// CHECK-SAME:    derived saved [4, 5, 6, 7] {
// CHECK-NEXT:  ^bb0(%router: {{.*}}, %w_up: {{.*}}, %w_down: {{.*}}, %dout: {{.*}}, %recv: {{.*}}, %h: {{.*}}, %a: {{.*}}, %back: {{.*}}):
// CHECK-NEXT:    %dy, %drouter = moe.dispatch %dout scale %router : {{.*}} dot %back
// CHECK-NEXT:    %da = moe.gmm_nt %dy, %w_down
// CHECK-NEXT:    %dw_down = moe.gmm_tn %a, %dy
// CHECK-NEXT:    %dh = moe.swiglu_grad %h, %da
// CHECK-NEXT:    %drecv = moe.gmm_nt %dh, %w_up
// CHECK-NEXT:    %dw_up = moe.gmm_tn %recv, %dh
// CHECK-NEXT:    %dback = moe.combine %drecv
// CHECK-NEXT:    %dx = moe.reduce %dback :
// CHECK-NEXT:    moe.return %dx, %drouter, %dw_up, %dw_down
moe.layer @standard on "ascend_a3" mode "backward" {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}} {
^bb0(%x: tensor<8x64xbf16>, %router: !moe.slots<8x2x1xf32>, %w_up: tensor<2x64x64xbf16>, %w_down: tensor<2x32x64xbf16>):
  %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %h = moe.gmm %recv, %w_up : !moe.routed<2x?x64xbf16>, tensor<2x64x64xbf16> -> !moe.routed<2x?x64xbf16>
  %a = moe.swiglu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x32xbf16>
  %y = moe.gmm %a, %w_down : !moe.routed<2x?x32xbf16>, tensor<2x32x64xbf16> -> !moe.routed<2x?x64xbf16>
  %back = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  %out = moe.reduce %back, %router : !moe.slots<8x2x64xbf16>, !moe.slots<8x2x1xf32> -> tensor<8x64xbf16>
  moe.return %out : tensor<8x64xbf16>
}

// -----

// Where the dispatch scaled the rows, the sum over the slots is weighted, and the same
// pass over them gives the router's gradient.
// CHECK-LABEL: moe.layer @scaled
// CHECK:         %drecv = moe.dispatch %dout :
// CHECK-NEXT:    %dback = moe.combine %drecv
// CHECK-NEXT:    %dx, %drouter = moe.reduce_dot %dback, %router, %x
// CHECK-NEXT:    moe.return %dx, %drouter
moe.layer @scaled on "ascend_a3" mode "backward" {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "input", repeats = "false", routing = {kind = "balanced"}} {
^bb0(%x: tensor<8x64xbf16>, %router: !moe.slots<8x2x1xf32>):
  %recv = moe.dispatch %x scale %router : !moe.slots<8x2x1xf32> : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %back = moe.combine %recv : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  %out = moe.reduce %back : !moe.slots<8x2x64xbf16> -> tensor<8x64xbf16>
  moe.return %out : tensor<8x64xbf16>
}

// -----

// A value that two operators use gets the sum of both gradients; an input whose gradient
// another input has too gets a copy.
// CHECK-LABEL: moe.layer @shared
// CHECK:         %[[A:.*]] = moe.relu_grad %sum, %dout
// CHECK-NEXT:    %[[B:.*]] = moe.add %dout, %[[A]]
// CHECK-NEXT:    %dq = moe.copy %[[B]]
// CHECK-NEXT:    moe.return %[[B]], %dq
moe.layer @shared on "ascend_a3" mode "backward" {} {
^bb0(%p: tensor<8x64xbf16>, %q: tensor<8x64xbf16>):
  %sum = moe.add %p, %q : tensor<8x64xbf16>
  %a = moe.relu %sum : tensor<8x64xbf16> -> tensor<8x64xbf16>
  %out = moe.add %sum, %a : tensor<8x64xbf16>
  moe.return %out : tensor<8x64xbf16>
}

// -----

// A training step keeps the forward graph and returns its result first.
// CHECK-LABEL: moe.layer @train
// CHECK:         %a = moe.gelu %p
// CHECK-NEXT:    %dp = moe.gelu_grad %p, %da
// CHECK-NEXT:    moe.return %a, %dp
moe.layer @train on "ascend_a3" mode "train" {} {
^bb0(%p: tensor<8x64xbf16>):
  %a = moe.gelu %p : tensor<8x64xbf16> -> tensor<8x64xbf16>
  moe.return %a : tensor<8x64xbf16>
}
