// REQUIRES: mlir-opt
// Upstream's mlir-opt reads the generic form of every op of every dialect ...
// RUN: xdsl-opt %S/../dialects/moe_ops.mlir --split-input-file --print-op-generic | %mlir-opt --allow-unregistered-dialect --split-input-file | filecheck %s --check-prefix=MOE
// RUN: xdsl-opt %S/../dialects/tile_ops.mlir --split-input-file --print-op-generic | %mlir-opt --allow-unregistered-dialect --split-input-file | filecheck %s --check-prefix=TILE
// RUN: xdsl-opt %S/../dialects/npu_ops.mlir --split-input-file --print-op-generic | %mlir-opt --allow-unregistered-dialect --split-input-file | filecheck %s --check-prefix=NPU
// MOE:  "moe.layer"() <{machine = "ascend_a3"
// MOE:  "moe.dispatch"(%{{.*}}) <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (tensor<8x64xbf16>) -> !moe.routed<2x?x64xbf16>
// TILE: "tile.program"() <{groups = [array<i64: 0>, array<i64: 1, 2>]
// TILE: "tile.task"(%{{.*}}, %{{.*}}) <{base = array<i64: 16>
// NPU:  "npu.program"() <{groups = [array<i64: 0>, array<i64: 1>]
// NPU:  "npu.wait_flag"() <{flag = #npu.flag<@recv_ready[0, 1]>, need = 4 : i64, team = #tile.team<aic[0:24]>}> : () -> ()

// ... and a compilation that passes through it half-way gives the same schedule file,
// locations included.
// RUN: xdsl-opt %samples/tiny.moe -p 'moe-tile,tile-select-gmm,tile-place' --print-op-generic --print-debuginfo > %t.tile
// RUN: %mlir-opt --allow-unregistered-dialect --mlir-print-op-generic --mlir-print-debuginfo --mlir-print-local-scope < %t.tile > %t.upstream
// RUN: xdsl-opt -p 'tile-lower-comm,tile-schedule,npu-insert-flags,npu-prune-flags,npu-allocate-events,npu-outline-queues,npu-check' -t ssc < %t.tile > %t.direct
// RUN: xdsl-opt -p 'tile-lower-comm,tile-schedule,npu-insert-flags,npu-prune-flags,npu-allocate-events,npu-outline-queues,npu-check' -t ssc < %t.upstream | diff %t.direct -
// RUN: filecheck %s --check-prefix=SSC < %t.direct
// SSC: tiny.moe:25:10

builtin.module {}
