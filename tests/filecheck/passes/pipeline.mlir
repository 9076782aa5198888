// The pipeline is text: each prefix of it can be run, and the rest on what it printed.

// The whole pipeline on a sample: one queue for each team, and the schedule file from it.
// RUN: xdsl-opt %samples/tiny.moe -p 'moe-tile{policy=list groups=2},tile-select-gmm,tile-place,tile-lower-comm,tile-schedule,npu-insert-flags,npu-prune-flags,npu-allocate-events,npu-outline-queues,npu-check' > %t.npu
// RUN: filecheck %s < %t.npu
// RUN: xdsl-opt -t ssc < %t.npu | filecheck %s --check-prefix=SSC

// In two halves, through stdin, in the generic form, with locations: the same file but
// for the locations, which the halves had and %t.npu had not.
// RUN: xdsl-opt -f moe -p 'moe-tile{policy=list groups=2},tile-select-gmm,tile-place,tile-lower-comm' --print-op-generic --print-debuginfo < %samples/tiny.moe > %t.tile
// RUN: xdsl-opt -p 'tile-schedule,npu-insert-flags,npu-prune-flags,npu-allocate-events,npu-outline-queues,npu-check' < %t.tile | diff %t.npu -
// RUN: xdsl-opt -p 'tile-schedule,npu-insert-flags,npu-prune-flags,npu-allocate-events,npu-outline-queues,npu-check' -t 'ssc{pipeline="by hand"}' < %t.tile | filecheck %s --check-prefix=LOCS

// CHECK-LABEL: npu.program @tiny on "ascend_a3" mode "forward" policy "list"
// CHECK-SAME:  groups [array<i64: 0>, array<i64: 1>]
// CHECK:         npu.event @recv_ready 2 x 2 ids [
// CHECK:         npu.queue aic[0:24] {
// CHECK:           npu.wait_flag @recv_ready[0, 0] >= 4
// CHECK-NEXT:      npu.task gmm (@recv[0, 0], @w_up[0]) -> (@h[0, 0])
// CHECK-NEXT:      npu.set_flag @h_ready[0, 0]
// CHECK:         npu.queue aiv[0:24] {
// CHECK:           npu.put_mem_signal dispatch[0, 0] @x -> @recv[0, 0] chunks 4 via put signal @recv_ready[0, 0]
// CHECK:         npu.queue aiv[24:48] {
// CHECK:           npu.task reduce (@back, @router) -> (@out[*, 0])

// SSC:      "format": "hpc-ssc",
// SSC-NEXT: "version": 1,
// SSC:      "policy": "list",
// SSC:      "pipeline": "",
// SSC:      "groups": [[0], [1]],

// LOCS:     "pipeline": "by hand",
// LOCS:     stdin:25:10

builtin.module {}
