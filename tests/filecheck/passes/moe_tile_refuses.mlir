// RUN: xdsl-opt %s -p moe-tile --verify-diagnostics --split-input-file | filecheck %s

// CHECK: moe-tile works on moe.layer, and the module has nothing
builtin.module {
}

// -----

// CHECK: moe-tile works on moe.layer, and the module has tile.program
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
tile.program @p on "ascend_a3" mode "forward" policy "list" #spec groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
}

// -----

// Hardware is known by name.
// CHECK: nope: unknown machine; known machines: ascend_910b4, ascend_a2, ascend_a3
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @p on "nope" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>):
  moe.return %x : tensor<8x64xbf16>
}

// -----

// CHECK: unknown policy 'fast'; there are serial, paper, list
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {policy = "fast"}, routing = {kind = "balanced"}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>):
  moe.return %x : tensor<8x64xbf16>
}

// -----

// CHECK: the pin groups must be 1 to 2, got 3
#spec = {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {groups = 3 : i64}, routing = {kind = "balanced"}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
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

// CHECK: the pin row_chunks must be 1 to 8, got 9
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", pins = {row_chunks = 9 : i64}, routing = {kind = "balanced"}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>):
  moe.return %x : tensor<8x64xbf16>
}

// -----

// The spec rides on the layer, and both must say the same.
// CHECK: the spec of the program lacks 'top_k'
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>):
  moe.return %x : tensor<8x64xbf16>
}

// -----

// CHECK: tensor<8x64xbf16> does not fit the spec: 9, and not 8
#spec = {tokens = array<i64: 9>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>):
  moe.return %x : tensor<8x64xbf16>
}

// -----

// CHECK: !moe.routed<3x?x64xbf16> does not fit the spec: 2, and not 3
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
^bb0(%x : !moe.routed<3x?x64xbf16>):
  moe.return %x : !moe.routed<3x?x64xbf16>
}

// -----

// CHECK: !moe.slots<8x4x1xf32> does not fit the spec: 8 tokens x 2 slots, and not 8 tokens x 4 slots
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
^bb0(%x : !moe.slots<8x4x1xf32>):
  moe.return %x : !moe.slots<8x4x1xf32>
}

// -----

// CHECK: tensor<4x64x32xbf16> does not fit the spec: 2, and not 4
#spec = {tokens = array<i64: 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 2 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "balanced"}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>, %w : tensor<4x64x32xbf16>):
  moe.return %x : tensor<8x64xbf16>
}

// -----

// CHECK: the routing does not fit
#spec = {tokens = array<i64: 8, 8>, hidden = 64 : i64, intermediate = 32 : i64, experts = 4 : i64, top_k = 2 : i64, activation = "swiglu", alpha = 1.702 : f64, limit = 7.0 : f64, dtype = "bf16", weights_at = "output", repeats = "false", routing = {kind = "counts", counts = [array<i64: 1, 2>]}}
moe.layer @p on "ascend_a3" mode "forward" #spec {
^bb0(%x : tensor<8x64xbf16>, %router : !moe.slots<8x2x1xf32>, %w_up : tensor<2x64x64xbf16>, %w_down : tensor<2x32x64xbf16>):
  %recv = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>
  %h = moe.gmm %recv, %w_up : !moe.routed<2x?x64xbf16>, tensor<2x64x64xbf16> -> !moe.routed<2x?x64xbf16>
  %a = moe.swiglu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x32xbf16>
  %y = moe.gmm %a, %w_down : !moe.routed<2x?x32xbf16>, tensor<2x32x64xbf16> -> !moe.routed<2x?x64xbf16>
  %back = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xbf16>
  %out = moe.reduce %back, %router : !moe.slots<8x2x64xbf16>, !moe.slots<8x2x1xf32> -> tensor<8x64xbf16>
  moe.return %out : tensor<8x64xbf16>
}
