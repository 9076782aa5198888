// RUN: xdsl-opt %s -p moe-derive-backward --split-input-file --verify-diagnostics | filecheck %s

// A mode that is none.
// CHECK: unknown mode 'sideways'; there are forward, backward, train
moe.layer @mode on "ascend_a3" mode "sideways" {} {
^bb0(%p: tensor<8x64xbf16>):
  moe.return %p : tensor<8x64xbf16>
}

// -----

// Slot rows that two operators sum, at the line that made them.
// CHECK: a.moe:7:3: error: back is reduced by two operators
moe.layer @reduced_twice on "ascend_a3" mode "backward" {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 64 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "relu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "input", repeats = "false", routing = {kind = "balanced"}} {
^bb0(%x: tensor<8x64xbf16>):
  %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %back = moe.combine %recv : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16> loc("a.moe":7:3)
  %a = moe.reduce %back : !moe.slots<8x2x64xbf16> -> tensor<8x64xbf16>
  %b = moe.reduce %back : !moe.slots<8x2x64xbf16> -> tensor<8x64xbf16>
  %out = moe.add %a, %b : tensor<8x64xbf16>
  moe.return %out : tensor<8x64xbf16>
}

// -----

// A layer that does not end in token rows.
// CHECK: a layer with gradients ends in one value of token rows, got !moe.slots<8x2x64xbf16>
moe.layer @slots on "ascend_a3" mode "backward" {} {
^bb0(%x: tensor<8x64xbf16>):
  %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %back = moe.combine %recv : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  moe.return %back : !moe.slots<8x2x64xbf16>
}

// -----

// A graph that is derived already.
// CHECK: the layer has gradients already
moe.layer @twice on "ascend_a3" mode "backward" {} derived {
^bb0(%p: tensor<8x64xbf16>, %d: tensor<8x64xbf16>):
  %a = moe.relu_grad %p, %d : tensor<8x64xbf16>, tensor<8x64xbf16> -> tensor<8x64xbf16>
  moe.return %a : tensor<8x64xbf16>
}

// -----

// A weight that two products use, at the second of them.
// CHECK: a.moe:9:3: error: w is used by two operators, and such gradients are not summed
moe.layer @weight on "ascend_a3" mode "backward" {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 64 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "relu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "input", repeats = "false", routing = {kind = "balanced"}} {
^bb0(%x: tensor<8x64xbf16>, %w: tensor<2x64x64xbf16>):
  %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %h = moe.gmm %recv, %w : !moe.routed<2x?x64xbf16>, tensor<2x64x64xbf16> -> !moe.routed<2x?x64xbf16>
  %y = moe.gmm %h, %w : !moe.routed<2x?x64xbf16>, tensor<2x64x64xbf16> -> !moe.routed<2x?x64xbf16> loc("a.moe":9:3)
  %back = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  %out = moe.reduce %back : !moe.slots<8x2x64xbf16> -> tensor<8x64xbf16>
  moe.return %out : tensor<8x64xbf16>
}
