// RUN: %invalid

// The groups are a partition of the relative sources, own rows in the first.
// CHECK: groups must be a partition of 0..R-1 with 0 in the first, got []
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: groups must be a partition of 0..R-1 with 0 in the first, got [[0], [2]]
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>, array<i64: 2>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: groups must be a partition of 0..R-1 with 0 in the first, got [[1], [0]]
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 1>, array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: groups must be a partition of 0..R-1 with 0 in the first, got [[0, 0]]
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0, 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: row_chunks must be at least 1, got 0
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 0 {
  npu.buffer @x token 8 x 64 bf16 input
}

// -----

// A program has no inputs: buffers are.
// CHECK: a program has no block arguments
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
^bb0(%x : i32):
}

// -----

// CHECK: test.op cannot stand in npu.program
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  "test.op"() : () -> ()
}

// -----

// Levels do not mix.
// CHECK: tile.task cannot stand in npu.program
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  %0 = tile.task relu (@h) -> (@a)
}

// -----

// A name is declared once.
// CHECK: @x is declared 2 times
npu.program @p on "ascend_a3" mode "forward" policy "list" {} groups [array<i64: 0>] row_chunks 1 {
  npu.buffer @x token 8 x 64 bf16 input
  npu.buffer @x token 8 x 64 bf16 input
}

// -----

// CHECK: space must be one of token, routed, slot, weight, got heap
npu.buffer @x heap 8 x 64 bf16 input

// -----

// CHECK: role must be one of input, weight, saved, workspace, output, got scratch
npu.buffer @x token 8 x 64 bf16 scratch

// -----

// CHECK: a buffer has at least one row and one column
npu.buffer @x token 0 x 64 bf16 input

// -----

// CHECK: a buffer has at least one row and one column
npu.buffer @x token 8 x -1 bf16 input

// -----

// CHECK: weights, and only weights, count experts
npu.buffer @x token 2 x 8 x 64 bf16 input

// -----

// CHECK: weights, and only weights, count experts
npu.buffer @w weight 8 x 64 bf16 weight

// -----

// CHECK: weights have at least one expert
npu.buffer @w weight 0 x 8 x 64 bf16 weight

// -----

// CHECK: expected 2 or 3 sizes, got 1
npu.buffer @x token 8 bf16 input

// -----

// CHECK: expected 2 or 3 sizes, got 4
npu.buffer @x token 8 x 8 x 8 x 8 bf16 input

// -----

// CHECK: Unexpected attribute i32
npu.buffer @x token 8 x 64 i32 input

// -----

// An event is a table with at least one counter, and no more than can be meant.
// CHECK: an event has 1 to 1048576 counters, got 0 x 2
npu.event @e 0 x 2

// -----

// CHECK: an event has 1 to 1048576 counters, got 1000000 x 1000000
npu.event @e 1000000 x 1000000

// -----

// CHECK: expected 4 ids, got 3
npu.event @e 2 x 2 ids [0, 1, 2]

// -----

// CHECK: npu.event is not an instruction of a queue
npu.queue aic[0:24] {
  npu.event @e 1 x 1
}

// -----

// A queue names the team once for all.
// CHECK: an instruction in a queue has the queue's team
npu.queue aic[0:24] {
  npu.set_flag @e[0, 0] on aic[0:24]
}

// -----

// CHECK: a wait needs at least 1 signal, got 0
npu.wait_flag @e[0, 0] >= 0 on aic[0:24]

// -----

// CHECK: kind must be one of dispatch, combine, got scatter
npu.put_mem_signal scatter[0, 0] @x -> @recv[0, 0] chunks 1 via put

// -----

// CHECK: transport must be one of put, collective, got mail
npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 1 via mail

// -----

// CHECK: chunks must be at least 1, got 0
npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 0 via put

// -----

// CHECK: expert and group must not be negative, got [0, -1]
npu.put_mem_signal dispatch[0, -1] @x -> @recv[0, 0] chunks 1 via put

// -----

// CHECK: only a dispatch scales rows
npu.put_mem_signal combine[0, 0] @y -> @back scale chunks 1 via put

// -----

// CHECK: a task reads and writes at least one region
npu.task relu (@h) -> () base [16]

// -----

// CHECK: base must be [m] or [m, n, k], all positive, got [16, 16]
npu.task gmm (@h, @w) -> (@a) base [16, 16]

// -----

// CHECK: base must be [m] or [m, n, k], all positive, got []
npu.task relu (@h) -> (@a) base []

// -----

// CHECK: op must be a word, got '2'
"npu.task"() <{op = "2", reads = [#tile.region<@h>], writes = [#tile.region<@a>], base = array<i64: 1>}> : () -> ()

// -----

// CHECK: scope must be one of rank, world, got node
npu.barrier node on aic[0:24]

// -----

// Flags and thresholds are refused while they are read.
// CHECK: Expected ','
npu.set_flag @e[0] on aic[0:24]

// -----

// CHECK: Expected integer literal
npu.set_flag @e[0, -1] on aic[0:24]

// -----

// CHECK: Expected '='
npu.wait_flag @e[0, 0] > 3 on aic[0:24]
