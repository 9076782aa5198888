"""The policies as data: what each leaves to the compiler and how it orders tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpc.schedule.order import Order, Work, list_order, stage_order


@dataclass(frozen=True, slots=True)
class Policy:
    """How a schedule is built.

    `order` gets the works and the bytes of L2.
    `groups`: source groups per expert, None = chosen by `choose_groups`.
    `put_rows`: most rows of one put where sources send as many as the mean (else see
    `tile-lower-comm`); `fill_team`: fewer where that occupies the cores better, see
    `hpc.schedule.deal`.
    `vector_rows`: rows of a vector tile, None = one share per core.
    `shared_aiv`: communication and vector work share one team of all AIVs.
    `phased`: one kernel launch per operator with barriers instead of events.
    `interleave`: a weight gradient runs next to the GMM that reads the same received
    rows, expert by expert, while they are in L2.
    """

    name: str
    doc: str
    order: Callable[[Sequence[Work], int], Order]
    groups: int | None = None
    put_rows: int = 128
    fill_team: bool = False
    vector_rows: int | None = 128
    shared_aiv: bool = True
    phased: bool = False
    interleave: bool = False


POLICIES = {
    policy.name: policy
    for policy in (
        Policy(
            "serial",
            "one whole-device kernel per operator, host-driven all-to-all",
            stage_order,
            groups=1,
            phased=True,
        ),
        Policy(
            "paper",
            "one launch, per-expert events, one vector queue, RATR (HyperParallel-MoE)",
            stage_order,
            groups=1,
            interleave=True,
        ),
        Policy(
            "list",
            "source groups, own rows first, AIV teams by role, earliest ready first",
            list_order,
            put_rows=64,
            fill_team=True,
            vector_rows=None,
            shared_aiv=False,
        ),
    )
}

EVENTS_PER_PART = {"forward": 4, "backward": 4, "train": 9}
"""Counters of the standard flow for one (expert, group), by mode: one for every result
that tasks of the same part wait for."""


def partition(ep: int, groups: int) -> tuple[tuple[int, ...], ...]:
    """Relative sources 0..ep-1 in `groups` groups: own rows alone, the rest evenly.

    >>> partition(8, 4)
    ((0,), (1, 2), (3, 4), (5, 6, 7))
    """
    if not 1 <= groups <= ep:
        raise ValueError(f"groups must be 1..{ep}, got {groups}")
    if groups == 1:
        return (tuple(range(ep)),)
    rest = ep - 1
    bounds = [1 + rest * i // (groups - 1) for i in range(groups)]
    cut = [range(lo, hi) for lo, hi in pairwise(bounds)]
    return ((0,), *(tuple(r) for r in cut))


def choose_groups(
    ep: int,
    local_experts: int,
    rows_per_source: float,
    max_events: int,
    mode: str = "forward",
) -> int:
    """Groups when nobody pinned them.

    More groups let a GMM start earlier, but each reads the expert's weights again: that
    is hidden only while a group's rows keep the cube busy for longer than the weights
    take to stream, rows >= peak FLOP/s / HBM bytes/s (about 244 at 354 TFLOPS and
    1.45 TB/s), and counters must fit the machine. There are at most four groups.
    `rows_per_source` is the mean rows of one expert from one rank.
    """
    most = min(ep, 4, (max_events - 1) // (EVENTS_PER_PART[mode] * local_experts))
    rows = rows_per_source * ep
    return max(1, min(most, int(rows // 256)))
