// RUN: %roundtrip
// RUN: %generic

// The standard layer: every operator on its own line, types after the colon.
// CHECK-LABEL: moe.layer @standard on "ascend_a3" mode "forward" {tokens = array<i64: 8, 8>}
// CHECK-NEXT:  ^bb0(%x: tensor<8x64xbf16>, %router: !moe.slots<8x2x1xf32>, %w_up: tensor<2x64x64xbf16>, %w_down: tensor<2x32x64xbf16>):
// CHECK-NEXT:    %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
// CHECK-NEXT:    %h = moe.gmm %recv, %w_up : !moe.routed<2x?x64xbf16>, tensor<2x64x64xbf16> -> !moe.routed<2x?x64xbf16>
// CHECK-NEXT:    %a = moe.swiglu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x32xbf16>
// CHECK-NEXT:    %y = moe.gmm %a, %w_down : !moe.routed<2x?x32xbf16>, tensor<2x32x64xbf16> -> !moe.routed<2x?x64xbf16>
// CHECK-NEXT:    %back = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
// CHECK-NEXT:    %out = moe.reduce %back, %router : !moe.slots<8x2x64xbf16>, !moe.slots<8x2x1xf32> -> tensor<8x64xbf16>
// CHECK-NEXT:    moe.return %out : tensor<8x64xbf16>
// CHECK-NEXT:  }
// GENERIC-LABEL: "moe.layer"()
// GENERIC-SAME:  <{sym_name = "standard", machine = "ascend_a3", mode = "forward", spec = {tokens = array<i64: 8, 8>}}> ({
// GENERIC:       "moe.dispatch"(%x) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<8x64xbf16>) -> !moe.routed<2x?x64xbf16>
// GENERIC-NEXT:  "moe.gmm"(%recv, %w_up) : (!moe.routed<2x?x64xbf16>, tensor<2x64x64xbf16>) -> !moe.routed<2x?x64xbf16>
// GENERIC-NEXT:  "moe.swiglu"(%h) : (!moe.routed<2x?x64xbf16>) -> !moe.routed<2x?x32xbf16>
// GENERIC-NEXT:  "moe.gmm"(%a, %w_down)
// GENERIC-NEXT:  "moe.combine"(%y) : (!moe.routed<2x?x64xbf16>) -> !moe.slots<8x2x64xbf16>
// GENERIC-NEXT:  "moe.reduce"(%back, %router) : (!moe.slots<8x2x64xbf16>, !moe.slots<8x2x1xf32>) -> tensor<8x64xbf16>
// GENERIC-NEXT:  "moe.return"(%out) : (tensor<8x64xbf16>) -> ()
moe.layer @standard on "ascend_a3" mode "forward" {tokens = array<i64: 8, 8>} {
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

// Router weights on the way in: dispatch has the router, reduce has not.
// CHECK-LABEL: moe.layer @weights_at_input
// CHECK:         %recv = moe.dispatch %x scale %router : !moe.slots<8x2x1xf32> : tensor<8x64xf16> -> !moe.routed<2x?x64xf16>
// CHECK:         %out = moe.reduce %back : !moe.slots<8x2x64xf16> -> tensor<8x64xf16>
// GENERIC-LABEL: weights_at_input
// GENERIC:       "moe.dispatch"(%x, %router) <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (tensor<8x64xf16>, !moe.slots<8x2x1xf32>)
moe.layer @weights_at_input on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xf16>, %router : !moe.slots<8x2x1xf32>):
  %recv = moe.dispatch %x scale %router : !moe.slots<8x2x1xf32> : tensor<8x64xf16> -> !moe.routed<2x?x64xf16>
  %back = moe.combine %recv : !moe.routed<2x?x64xf16> -> !moe.slots<8x2x64xf16>
  %out = moe.reduce %back : !moe.slots<8x2x64xf16> -> tensor<8x64xf16>
  moe.return %out : tensor<8x64xf16>
}

// -----

// Activations: the gated ones halve the columns, on tokens as well as on routed rows.
// CHECK-LABEL: moe.layer @activations
// CHECK:         %swiglu = moe.swiglu %r : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x32xf32>
// CHECK-NEXT:    %geglu = moe.geglu %r : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x32xf32>
// CHECK-NEXT:    %oai = moe.swiglu_oai %r alpha 1.702000e+00 limit 7.000000e+00 : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x32xf32>
// CHECK-NEXT:    %relu = moe.relu %r : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x64xf32>
// CHECK-NEXT:    %relu2 = moe.relu2 %r : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x64xf32>
// CHECK-NEXT:    %gelu = moe.gelu %x : tensor<8x64xf32> -> tensor<8x64xf32>
// CHECK-NEXT:    %half = moe.swiglu %x : tensor<8x64xf32> -> tensor<8x32xf32>
// CHECK-NEXT:    %sum = moe.add %x, %gelu : tensor<8x64xf32>
// CHECK-NEXT:    %rows = moe.add %swiglu, %geglu : !moe.routed<2x?x32xf32>
// GENERIC-LABEL: activations
// GENERIC:       "moe.swiglu_oai"(%r) <{alpha = 1.702000e+00 : f64, limit = 7.000000e+00 : f64}>
// GENERIC:       "moe.add"(%x, %gelu) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
moe.layer @activations on "ascend_a2" mode "forward" {} {
^bb0(%x : tensor<8x64xf32>, %r : !moe.routed<2x?x64xf32>):
  %swiglu = moe.swiglu %r : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x32xf32>
  %geglu = moe.geglu %r : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x32xf32>
  %oai = moe.swiglu_oai %r alpha 1.702 limit 7.0 : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x32xf32>
  %relu = moe.relu %r : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x64xf32>
  %relu2 = moe.relu2 %r : !moe.routed<2x?x64xf32> -> !moe.routed<2x?x64xf32>
  %gelu = moe.gelu %x : tensor<8x64xf32> -> tensor<8x64xf32>
  %half = moe.swiglu %x : tensor<8x64xf32> -> tensor<8x32xf32>
  %sum = moe.add %x, %gelu : tensor<8x64xf32>
  %rows = moe.add %swiglu, %geglu : !moe.routed<2x?x32xf32>
  moe.return %sum : tensor<8x64xf32>
}

// -----

// A flow may end before its rows are back: routed rows and slots can be returned. Other
// attributes ride along.
// CHECK-LABEL: moe.layer @ends_routed on "ascend_a3" mode "forward" {}
// CHECK:         moe.return %recv : !moe.routed<2x?x64xbf16>
// CHECK-NEXT:  } {note = "kept"}
// GENERIC-LABEL: ends_routed
// GENERIC:       }) {note = "kept"} : () -> ()
moe.layer @ends_routed on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xbf16>):
  %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  moe.return %recv : !moe.routed<2x?x64xbf16>
} {note = "kept"}

// -----

// CHECK-LABEL: moe.layer @ends_in_slots
// CHECK:         moe.return %back : !moe.slots<8x2x64xbf16>
// GENERIC-LABEL: ends_in_slots
moe.layer @ends_in_slots on "ascend_a3" mode "forward" {} {
^bb0(%y : !moe.routed<2x?x64xbf16>):
  %back = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  moe.return %back : !moe.slots<8x2x64xbf16>
}

// -----

// Gradients: the transposed products, the activations' own, both results of the two
// operators that also give the router's gradient, and arguments saved by a forward pass.
// CHECK-LABEL: moe.layer @gradients on "ascend_a3" mode "backward" {} derived saved [4, 5]
// CHECK:         %dy, %drouter = moe.dispatch %dout scale %router : !moe.slots<8x2x1xf32> dot %back : !moe.slots<8x2x64xbf16> : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>, !moe.slots<8x2x1xf32>
// CHECK-NEXT:    %da = moe.gmm_nt %dy, %w : !moe.routed<2x?x64xbf16>, tensor<2x32x64xbf16> -> !moe.routed<2x?x32xbf16>
// CHECK-NEXT:    %dw = moe.gmm_tn %da, %dy : !moe.routed<2x?x32xbf16>, !moe.routed<2x?x64xbf16> -> tensor<2x32x64xbf16>
// CHECK-NEXT:    %dh = moe.swiglu_oai_grad %h, %da alpha 1.702000e+00 limit 7.000000e+00 : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16> -> !moe.routed<2x?x64xbf16>
// CHECK-NEXT:    %dback = moe.combine %dh : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
// CHECK-NEXT:    %dx, %dr = moe.reduce_dot %dback, %router, %dout : !moe.slots<8x2x64xbf16>, !moe.slots<8x2x1xf32>, tensor<8x64xbf16> -> tensor<8x64xbf16>, !moe.slots<8x2x1xf32>
// CHECK-NEXT:    %dq = moe.copy %dx : tensor<8x64xbf16>
// CHECK-NEXT:    moe.return %dx, %drouter, %dw, %dr, %dq
// GENERIC-LABEL: "gradients"
// GENERIC:         "moe.dispatch"(%dout, %router, %back) <{operandSegmentSizes = array<i32: 1, 1, 1>}>
moe.layer @gradients on "ascend_a3" mode "backward" {} derived saved [4, 5] {
^bb0(%x: tensor<8x64xbf16>, %router: !moe.slots<8x2x1xf32>, %w: tensor<2x32x64xbf16>, %dout: tensor<8x64xbf16>, %h: !moe.routed<2x?x64xbf16>, %back: !moe.slots<8x2x64xbf16>):
  %dy, %drouter = moe.dispatch %dout scale %router : !moe.slots<8x2x1xf32> dot %back : !moe.slots<8x2x64xbf16> : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>, !moe.slots<8x2x1xf32>
  %da = moe.gmm_nt %dy, %w : !moe.routed<2x?x64xbf16>, tensor<2x32x64xbf16> -> !moe.routed<2x?x32xbf16>
  %dw = moe.gmm_tn %da, %dy : !moe.routed<2x?x32xbf16>, !moe.routed<2x?x64xbf16> -> tensor<2x32x64xbf16>
  %dh = moe.swiglu_oai_grad %h, %da alpha 1.702 limit 7.0 : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16> -> !moe.routed<2x?x64xbf16>
  %dback = moe.combine %dh : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  %dx, %dr = moe.reduce_dot %dback, %router, %dout : !moe.slots<8x2x64xbf16>, !moe.slots<8x2x1xf32>, tensor<8x64xbf16> -> tensor<8x64xbf16>, !moe.slots<8x2x1xf32>
  %dq = moe.copy %dx : tensor<8x64xbf16>
  moe.return %dx, %drouter, %dw, %dr, %dq : tensor<8x64xbf16>, !moe.slots<8x2x1xf32>, tensor<2x32x64xbf16>, !moe.slots<8x2x1xf32>, tensor<8x64xbf16>
}
