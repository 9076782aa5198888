"""The default pipeline, as data, with a reason for every step."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.passes import ModulePass

STEPS: tuple[tuple[str, str], ...] = (
    ("moe-derive-backward", "gradients are operators like others; nothing in forward"),
    ("moe-tile{policy={policy}}", "operators to tasks; picks groups and row chunks"),
    ("tile-select-gmm", "base tiles need the rows that a task expects"),
    ("tile-place", "teams need to know which tasks there are"),
    ("tile-lower-comm", "puts need a team and the number of chunks"),
    ("tile-schedule", "the order needs the modelled time of every task"),
    ("npu-insert-flags", "events follow from order and teams; leaves SSA"),
    ("npu-prune-flags", "fewer events before they get numbers"),
    ("npu-allocate-events", "numbers within the machine's limit"),
    ("npu-outline-queues", "one list per team, as the cores run it"),
    ("npu-check", "nothing is emitted that is not proven safe"),
)


def default_pipeline(policy: str) -> str:
    """The default pipeline as text, for `-p`: `moe-tile{policy=list},...`."""
    return ",".join(step.replace("{policy}", policy) for step, _ in STEPS)


def _moe_derive_backward() -> type[ModulePass]:
    from passes.moe_derive_backward import MoeDeriveBackwardPass

    return MoeDeriveBackwardPass


def _moe_tile() -> type[ModulePass]:
    from passes.moe_tile import MoeTilePass

    return MoeTilePass


def _tile_select_gmm() -> type[ModulePass]:
    from passes.tile_select_gmm import TileSelectGmmPass

    return TileSelectGmmPass


def _tile_place() -> type[ModulePass]:
    from passes.tile_place import TilePlacePass

    return TilePlacePass


def _tile_lower_comm() -> type[ModulePass]:
    from passes.tile_lower_comm import TileLowerCommPass

    return TileLowerCommPass


def _tile_schedule() -> type[ModulePass]:
    from passes.tile_schedule import TileSchedulePass

    return TileSchedulePass


def _npu_insert_flags() -> type[ModulePass]:
    from passes.npu_insert_flags import NpuInsertFlagsPass

    return NpuInsertFlagsPass


def _npu_prune_flags() -> type[ModulePass]:
    from passes.npu_prune_flags import NpuPruneFlagsPass

    return NpuPruneFlagsPass


def _npu_allocate_events() -> type[ModulePass]:
    from passes.npu_allocate_events import NpuAllocateEventsPass

    return NpuAllocateEventsPass


def _npu_outline_queues() -> type[ModulePass]:
    from passes.npu_outline_queues import NpuOutlineQueuesPass

    return NpuOutlineQueuesPass


def _npu_check() -> type[ModulePass]:
    from passes.npu_check import NpuCheckPass

    return NpuCheckPass


PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "moe-derive-backward": _moe_derive_backward,
    "moe-tile": _moe_tile,
    "tile-select-gmm": _tile_select_gmm,
    "tile-place": _tile_place,
    "tile-lower-comm": _tile_lower_comm,
    "tile-schedule": _tile_schedule,
    "npu-insert-flags": _npu_insert_flags,
    "npu-prune-flags": _npu_prune_flags,
    "npu-allocate-events": _npu_allocate_events,
    "npu-outline-queues": _npu_outline_queues,
    "npu-check": _npu_check,
}
"""Every pass by name; a function each, so that only those used are imported."""
