// RUN: %invalid

// The groups are a partition of the relative sources, own rows in the first.
// CHECK: groups must be a partition of 0..R-1 with 0 in the first, got []
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: groups must be a partition of 0..R-1 with 0 in the first, got [[0], [2]]
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>, array<i64: 2>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: groups must be a partition of 0..R-1 with 0 in the first, got [[1], [0]]
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 1>, array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: groups must be a partition of 0..R-1 with 0 in the first, got [[0, 0]]
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0, 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: row_chunks must be at least 1, got 0
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 0 {
  tile.buffer @x token 8 x 64 bf16 input
}

// -----

// A program has no inputs: buffers are.
// CHECK: a program has no block arguments
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
^bb0(%x : i32):
}

// -----

// CHECK: test.op cannot stand in tile.program
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  "test.op"() : () -> ()
}

// -----

// Levels do not mix.
// CHECK: npu.set_flag cannot stand in tile.program
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  npu.set_flag @e[0, 0] on aic[0:1]
}

// -----

// A name is declared once.
// CHECK: @x is declared 2 times
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  tile.buffer @x token 8 x 64 bf16 input
  tile.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: space must be one of token, routed, slot, weight, got heap
tile.buffer @x heap 8 x 64 bf16 input

// -----

// CHECK: role must be one of input, weight, saved, workspace, output, got scratch
tile.buffer @x token 8 x 64 bf16 scratch

// -----

// CHECK: a buffer has at least one row and one column
tile.buffer @x token 0 x 64 bf16 input

// -----

// CHECK: a buffer has at least one row and one column
tile.buffer @x token 8 x -1 bf16 input

// -----

// CHECK: weights, and only weights, count experts
tile.buffer @x token 2 x 8 x 64 bf16 input

// -----

// CHECK: weights, and only weights, count experts
tile.buffer @w weight 8 x 64 bf16 weight

// -----

// CHECK: weights have at least one expert
tile.buffer @w weight 0 x 8 x 64 bf16 weight

// -----

// CHECK: expected 2 or 3 sizes, got 1
tile.buffer @x token 8 bf16 input

// -----

// CHECK: expected 2 or 3 sizes, got 4
tile.buffer @x token 8 x 8 x 8 x 8 bf16 input

// -----

// CHECK: Unexpected attribute i32
tile.buffer @x token 8 x 64 i32 input

// -----

// Dependencies come first, in the same program.
// CHECK: nothing before tile.task makes what it needs
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@h) -> (@a) after(%1)
  %1 = tile.task relu (@g) -> (@h)
}

// -----

// CHECK: nothing before tile.task makes what it needs
%0 = tile.task relu (@g) -> (@h)
tile.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  %1 = tile.task relu (@h) -> (@a) after(%0)
}

// -----

// CHECK: a task reads and writes at least one region
%0 = tile.task relu () -> (@a)

// -----

// CHECK: a task reads and writes at least one region
%0 = tile.task relu (@h) -> ()

// -----

// A base tile is [m, n, k] or, for vector work, [m].
// CHECK: base must be [m] or [m, n, k], all positive, got [16, 16]
%0 = tile.task gmm (@h, @w) -> (@a) base [16, 16]

// -----

// CHECK: base must be [m] or [m, n, k], all positive, got [0]
%0 = tile.task relu (@h) -> (@a) base [0]

// -----

// CHECK: base must be [m] or [m, n, k], all positive, got [16, -1, 16]
%0 = tile.task gmm (@h, @w) -> (@a) base [16, -1, 16]

// -----

// The name of an operator is printed as a bare word.
// CHECK: op must be a word, got 'two words'
%0 = "tile.task"() <{op = "two words", reads = [#tile.region<@h>], writes = [#tile.region<@a>]}> : () -> !tile.token

// -----

// A task waits for tasks; signals are awaited.
// CHECK: operand 'after' at position 0 does not verify
%0 = tile.put dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via put
%1 = "tile.task"(%0) <{op = "relu", reads = [#tile.region<@h>], writes = [#tile.region<@a>]}> : (!tile.signal) -> !tile.token

// -----

// CHECK: kind must be one of dispatch, combine, got scatter
%0 = tile.exchange scatter[0, 0] @x -> @recv[0, 0]

// -----

// CHECK: expert and group must not be negative, got [-1, 0]
%0 = tile.exchange dispatch[-1, 0] @x -> @recv[0, 0]

// -----

// CHECK: expert and group must not be negative, got [0, -2]
%0 = tile.put combine[0, -2] @y -> @back chunks 1 via put

// -----

// CHECK: only a dispatch scales rows
%0 = tile.exchange combine[0, 0] @y -> @back scale

// -----

// CHECK: only a dispatch scales rows
%0 = tile.put combine[0, 0] @y -> @back scale chunks 1 via put

// -----

// CHECK: chunks must be at least 1, got 0
%0 = tile.put combine[0, 0] @y -> @back chunks 0 via put

// -----

// CHECK: transport must be one of put, collective, got mail
%0 = tile.put combine[0, 0] @y -> @back chunks 1 via mail

// -----

// CHECK: an await waits for at least one put
%0 = tile.await()

// -----

// Regions and teams are refused while they are read, at their place.
// CHECK: a region has 1 or 2 indices, got 3
%0 = tile.task relu (@h[0, 1, 2]) -> (@a)

// -----

// CHECK: a region has 1 or 2 indices, got 0
%0 = tile.task relu (@h[]) -> (@a)

// -----

// CHECK: Expected integer literal
%0 = tile.task relu (@h[-2]) -> (@a)

// -----

// CHECK: a team has cores, got [4:4]
%0 = tile.task relu (@h) -> (@a) on aiv[4:4]

// -----

// CHECK: a team has cores, got [4:2]
"test.op"() {team = #tile.team<aiv[4:2]>} : () -> ()

// -----

// CHECK: unit must be one of aic, aiv, got gpu
%0 = tile.task relu (@h) -> (@a) on gpu[0:4]

// -----

// CHECK: dot is (rows, result), of a dispatch
%0 = tile.exchange combine[0, 0] @y[0, 0] -> @back[0, 0] dot(@b[0, 0], @r[0, 0])
