"""The event loop: execution of all queues of all ranks, one event at a time.

A worker's step is: fetch, wait, run, signal. Costs, in this order, for every step:
`task_fetch_us`; if the gate is closed, until it is open and then one `event_poll_us`
(an open one is seen while the task is fetched); the work; `event_set_us` per Set, after
which the signal travels `event_visible_us`.

- Compute occupies its core for the larger of its own time and its HBM transfer.
- A put tile reads HBM and occupies the egress link of its rank; the core is busy until
  both are done and it has driven and computed all of it, plus the fixed cost of a put
  (the fence before its signal, dearer between nodes). One hop after it began, it starts
  to occupy the ingress link and HBM of the destination:
  bandwidth there is booked at arrival, so a transfer that comes late never blocks one
  that came earlier.
  It is delivered, and its signal on its way, when every leg is done. An own-rank put is
  a core's copy. A put without a signal holds its core until delivery, so that a
  barrier covers it.
- HBM and links are shared equally (`sharing`) or served first come, first served
  (`turns`). Puts draw from HBM at most at a core's put rate, and as much again for a
  second row to multiply with.
  What a byte is worth on a link, and the hop, depend on the tile (see `expand`). A
  collective has no limit per core; what it sends is computed before, in a pass of its
  own, which here comes on top of the transfer.
- A barrier opens `sync_all_us` after the last arrival, later if it launches a kernel.
  Every program starts with a kernel launch.

Signals and waits are resolved ahead of time with exact time stamps (`walk`); only
starts of work, arrivals and wake-ups of bandwidths are events. Simultaneous ones happen
by kind, then in the order of cores, bandwidths, put tiles, and ranks last: so a rank's
part of a run does not depend on which rank it is.

The functions of all four modules are compiled as they stand by `hpc.interp.compiled`,
which also exchanges the heap functions. So they use indexed loads, numbers and each
other only: no objects but `State`, no recursion, no lists of their own, no exceptions.
Their names are different, and what the hottest would call they hold themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc.interp.sharing import run_shared
from hpc.interp.turns import run_in_turn

if TYPE_CHECKING:
    from hpc.interp.state import State


def run_events(s: State, limit: int) -> int:
    """Handles up to `limit` events; fewer than that when none is left."""
    return run_shared(s, limit) if s.shared else run_in_turn(s, limit)
