// RUN: %invalid

// A layer ends in moe.return: without it there is no output.
// CHECK: a layer must end in moe.return
moe.layer @other_end on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xbf16>):
  "test.termop"() : () -> ()
}

// -----

// CHECK: Operation moe.relu terminates block in single-block region but is not a terminator
moe.layer @no_return on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xbf16>):
  %a = moe.relu %x : tensor<8x64xbf16> -> tensor<8x64xbf16>
}

// -----

// Only operators of the dialect, which have a SplitSpec, stand in a layer.
// CHECK: a layer holds operators of the moe dialect, got test.op
moe.layer @foreign on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xbf16>):
  %a = "test.op"(%x) : (tensor<8x64xbf16>) -> tensor<8x64xbf16>
  moe.return %a : tensor<8x64xbf16>
}

// -----

// CHECK: inputs of a layer are tensors or rows, got i32
moe.layer @wrong_input on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xbf16>, %i : i32):
  moe.return %x : tensor<8x64xbf16>
}

// -----

// Elements are floating-point numbers.
// CHECK: Unexpected attribute i8
moe.layer @integers on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xi8>):
  moe.return %x : tensor<8x64xi8>
}

// -----

// CHECK: Operation moe.layer contains empty block in single-block region
moe.layer @empty_body on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<8x64xbf16>):
}

// -----

// Shapes are known when a layer is compiled; rows per expert are not, and are routed.
// CHECK: an input must have 2 or 3 dimensions of known size, got tensor<?x64xbf16>
moe.layer @dynamic on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<?x64xbf16>):
  moe.return %x : tensor<?x64xbf16>
}

// -----

// CHECK: an input must have 2 or 3 dimensions of known size, got tensor<64xbf16>
moe.layer @vector on "ascend_a3" mode "forward" {} {
^bb0(%x : tensor<64xbf16>):
  moe.return %x : tensor<64xbf16>
}

// -----

// CHECK: 'moe.return' expects parent op 'moe.layer'
builtin.module {
  %x = "test.op"() : () -> tensor<8x64xbf16>
  moe.return %x : tensor<8x64xbf16>
}

// -----

// CHECK: columns of the result must be 64, got 32
%x = "test.op"() : () -> tensor<8x64xbf16>
%r = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x32xbf16>

// -----

// CHECK: element of the result must be bf16, got f32
%x = "test.op"() : () -> tensor<8x64xbf16>
%r = moe.dispatch %x : tensor<8x64xbf16> -> !moe.routed<2x?x64xf32>

// -----

// CHECK: x must have 2 dimensions of known size, got tensor<2x8x64xbf16>
%x = "test.op"() : () -> tensor<2x8x64xbf16>
%r = moe.dispatch %x : tensor<2x8x64xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// CHECK: columns of the router must be 1, got 2
%x, %w = "test.op"() : () -> (tensor<8x64xbf16>, !moe.slots<8x2x2xf32>)
%r = moe.dispatch %x scale %w : !moe.slots<8x2x2xf32> : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// CHECK: tokens of the router must be 8, got 9
%x, %w = "test.op"() : () -> (tensor<8x64xbf16>, !moe.slots<9x2x1xf32>)
%r = moe.dispatch %x scale %w : !moe.slots<9x2x1xf32> : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// CHECK: the weight must have 3 dimensions of known size, got tensor<64x32xbf16>
%r, %w = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, tensor<64x32xbf16>)
%h = moe.gmm %r, %w : !moe.routed<2x?x64xbf16>, tensor<64x32xbf16> -> !moe.routed<2x?x32xbf16>

// -----

// CHECK: experts of the weight must be 2, got 3
%r, %w = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, tensor<3x64x32xbf16>)
%h = moe.gmm %r, %w : !moe.routed<2x?x64xbf16>, tensor<3x64x32xbf16> -> !moe.routed<2x?x32xbf16>

// -----

// CHECK: K of the weight must be 64, got 48
%r, %w = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, tensor<2x48x32xbf16>)
%h = moe.gmm %r, %w : !moe.routed<2x?x64xbf16>, tensor<2x48x32xbf16> -> !moe.routed<2x?x32xbf16>

// -----

// CHECK: columns of the result must be 32, got 64
%r, %w = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16>)
%h = moe.gmm %r, %w : !moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// CHECK: experts of the result must be 2, got 4
%r, %w = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16>)
%h = moe.gmm %r, %w : !moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16> -> !moe.routed<4x?x32xbf16>

// -----

// CHECK: element of the weight must be bf16, got f16
%r, %w = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, tensor<2x64x32xf16>)
%h = moe.gmm %r, %w : !moe.routed<2x?x64xbf16>, tensor<2x64x32xf16> -> !moe.routed<2x?x32xbf16>

// -----

// CHECK: element of the result must be bf16, got f32
%r, %w = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16>)
%h = moe.gmm %r, %w : !moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16> -> !moe.routed<2x?x32xf32>

// -----

// A gated activation reads [gate | up] and halves the columns; a plain one does not.
// CHECK: input columns (2 x output columns) must be 128, got 64
%h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
%a = moe.swiglu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// CHECK: input columns (1 x output columns) must be 32, got 64
%h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
%a = moe.relu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x32xbf16>

// -----

// CHECK: rows of the result must be !moe.routed<2x?x1xbf16>, got !moe.routed<3x?x1xbf16>
%h = "test.op"() : () -> !moe.routed<2x?x64xbf16>
%a = moe.relu %h : !moe.routed<2x?x64xbf16> -> !moe.routed<3x?x64xbf16>

// -----

// CHECK: rows of the result must be tensor<8x1xbf16>, got !moe.routed<2x?x1xbf16>
%h = "test.op"() : () -> tensor<8x64xbf16>
%a = moe.relu %h : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// Slots are only reduced, never computed on.
// CHECK: Unexpected attribute !moe.slots<8x2x64xbf16>
%s = "test.op"() : () -> !moe.slots<8x2x64xbf16>
%a = moe.relu %s : !moe.slots<8x2x64xbf16> -> !moe.slots<8x2x64xbf16>

// -----

// CHECK: attribute tensor<8x64xbf16> expected from variable 'T', but got tensor<8x32xbf16>
%p, %q = "test.op"() : () -> (tensor<8x64xbf16>, tensor<8x32xbf16>)
%s = "moe.add"(%p, %q) : (tensor<8x64xbf16>, tensor<8x32xbf16>) -> tensor<8x64xbf16>

// -----

// CHECK: columns of the result must be 64, got 32
%y = "test.op"() : () -> !moe.routed<2x?x64xbf16>
%b = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x32xbf16>

// -----

// CHECK: element of the result must be bf16, got f32
%y = "test.op"() : () -> !moe.routed<2x?x64xbf16>
%b = moe.combine %y : !moe.routed<2x?x64xbf16> -> !moe.slots<8x2x64xf32>

// -----

// CHECK: expected the rows and at most the router, got 0
%o = "moe.reduce"() : () -> tensor<8x64xbf16>

// -----

// CHECK: shape of the result must be (8, 64), got (16, 64)
%b = "test.op"() : () -> !moe.slots<8x2x64xbf16>
%o = moe.reduce %b : !moe.slots<8x2x64xbf16> -> tensor<16x64xbf16>

// -----

// CHECK: element of the result must be bf16, got f32
%b = "test.op"() : () -> !moe.slots<8x2x64xbf16>
%o = moe.reduce %b : !moe.slots<8x2x64xbf16> -> tensor<8x64xf32>

// -----

// CHECK: columns of the router must be 1, got 64
%b, %w = "test.op"() : () -> (!moe.slots<8x2x64xbf16>, !moe.slots<8x2x64xf32>)
%o = moe.reduce %b, %w : !moe.slots<8x2x64xbf16>, !moe.slots<8x2x64xf32> -> tensor<8x64xbf16>

// -----

// CHECK: slots of the router must be (8, 2), got (8, 4)
%b, %w = "test.op"() : () -> (!moe.slots<8x2x64xbf16>, !moe.slots<8x4x1xf32>)
%o = moe.reduce %b, %w : !moe.slots<8x2x64xbf16>, !moe.slots<8x4x1xf32> -> tensor<8x64xbf16>

// -----

// Types are refused while they are read, at their place.
// CHECK: expected 3 dimensions, got 2
"test.op"() : () -> !moe.routed<2x64xbf16>

// -----

// CHECK: the rows of a routed type are always '?'
"test.op"() : () -> !moe.routed<2x8x64xbf16>

// -----

// CHECK: expected 3 dimensions, got 4
"test.op"() : () -> !moe.slots<2x8x64x1xbf16>

// -----

// CHECK: sizes must be at least 1, got 0x64
"test.op"() : () -> !moe.routed<0x?x64xbf16>

// -----

// CHECK: sizes must be at least 1, got 8x?x64
"test.op"() : () -> !moe.slots<8x?x64xbf16>

// -----

// CHECK: '<' expected
"test.op"() : () -> !moe.routed

// -----

// CHECK: Unexpected attribute i32
"test.op"() : () -> !moe.slots<8x2x64xi32>

// -----

// The transposed product runs along N.
// CHECK: N of the weight must be 64, got 32
%d, %w = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16>)
%r = moe.gmm_nt %d, %w : !moe.routed<2x?x64xbf16>, tensor<2x64x32xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// CHECK: shape of the result must be (2, 64, 32), got (2, 32, 64)
%p, %q = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16>)
%dw = moe.gmm_tn %p, %q : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x32xbf16> -> tensor<2x32x64xbf16>

// -----

// CHECK: the gradient must be !moe.routed<2x?x32xbf16>, got !moe.routed<2x?x64xbf16>
%h, %d = "test.op"() : () -> (!moe.routed<2x?x64xbf16>, !moe.routed<2x?x64xbf16>)
%dh = moe.swiglu_grad %h, %d : !moe.routed<2x?x64xbf16>, !moe.routed<2x?x64xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// CHECK: dot takes slots and gives weights, or neither
%x, %back = "test.op"() : () -> (tensor<8x64xbf16>, !moe.slots<8x2x64xbf16>)
%dy = moe.dispatch %x dot %back : !moe.slots<8x2x64xbf16> : tensor<8x64xbf16> -> !moe.routed<2x?x64xbf16>

// -----

// CHECK: columns of the router must be 1, got 64
%back, %x = "test.op"() : () -> (!moe.slots<8x2x64xbf16>, tensor<8x64xbf16>)
%dx, %dr = moe.reduce_dot %back, %back, %x : !moe.slots<8x2x64xbf16>, !moe.slots<8x2x64xbf16>, tensor<8x64xbf16> -> tensor<8x64xbf16>, !moe.slots<8x2x64xbf16>

// -----

// CHECK: saved must name arguments of 1, got [1]
moe.layer @saved on "ascend_a3" mode "backward" {} saved [1] {
^bb0(%x: tensor<8x64xbf16>):
  moe.return %x : tensor<8x64xbf16>
}
