"""Results of a timing run: what is reported, how it is defined, what must hold.

All times are microseconds from the launch, all sizes bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpc.interp.expand import Expanded
from hpc.interp.flow import epilogue, flow_nodes, node_of
from hpc.interp.l2 import hit_rate, hit_rates
from hpc.interp.lifetimes import Spans, buffer_spans
from hpc.interp.overlap import hidden_shares
from hpc.interp.program import NO_GATE, Program
from hpc.interp.task_steps import COMPUTE
from hpc.interp.trace_data import TraceData, trace_of
from hpc.machine.cost import launch_us
from hpc.machine.record import Machine
from hpc.schedule.model import UNITS, Put, Schedule, Task

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TOLERANCE = 1e-9
"""Relative rounding allowed in the conservation checks."""


NOISE_BYTES = 1e-3
"""What sums of shares of bytes may miss by where nearly all of them hit in L2."""


class ConservationError(AssertionError):
    """A run lost time or bytes: an internal error of the engine, never the user's."""


@dataclass(frozen=True, slots=True)
class Run:
    """Raw arrays of a finished run.

    `arrive`, `start`, `end` have one entry per task instance, ordered by rank, queue,
    core, step; `put_*` one per put tile, ordered by rank and program. `served` is
    [HBM, egress, ingress] x ranks, in bytes as the resources saw them.
    """

    schedule: Schedule
    machine: Machine
    program: Program
    work: Expanded
    arrive: Floats
    start: Floats
    end: Floats
    done_us: Floats
    put_begin: Floats
    put_sent: Floats
    put_delivered: Floats
    put_core: npt.NDArray[np.int32]
    served: Floats

    @property
    def ranks(self) -> int:
        """Ranks that were simulated; the layer's others repeat them (see `fold`)."""
        return self.work.rows.ranks

    @property
    def copies(self) -> int:
        """Ranks of the layer for each one that was simulated."""
        return self.schedule.layer.ep // self.ranks

    def every(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values per simulated rank as values per rank of the layer."""
        return np.tile(values, self.copies)

    def block(self, values: Floats, q: int) -> Floats:
        """`values` of queue q as [ranks, cores, steps]."""
        ranks = self.ranks
        sizes = [queue.work_us[0].size for queue in self.work.queues]
        first = sum(sizes[:q])
        flat = values.reshape(ranks, sum(sizes))[:, first : first + sizes[q]]
        return flat.reshape(self.work.queues[q].work_us.shape)

    def last_ends(self, q: int) -> Floats:
        """When the last core with a share of each step of queue q ends it, float64
        [ranks, steps]; -inf if no core has one."""
        pairs = zip(self.work.queues[q].tiles, self.block(self.end, q), strict=True)
        # Rank by rank: no copy of all times at once.
        found = [np.where(held > 0, end, -np.inf).max(axis=0) for held, end in pairs]
        return np.array(found)

    def first_starts(self, q: int) -> Floats:
        """When the first core with a share of each step starts it; else inf."""
        pairs = zip(self.work.queues[q].tiles, self.block(self.start, q), strict=True)
        found = [np.where(held > 0, start, np.inf).min(axis=0) for held, start in pairs]
        return np.array(found)

    @property
    def put_source(self) -> npt.NDArray[np.int32]:
        ranks = np.arange(self.ranks, dtype=np.int32)
        return np.repeat(ranks, len(self.work.puts.shift))

    @property
    def put_dest(self) -> npt.NDArray[np.int32]:
        dest = np.tile(self.work.puts.shift.astype(np.int32), self.ranks)
        dest += self.put_source
        dest %= self.ranks
        return dest

    @property
    def put_away(self) -> npt.NDArray[np.bool_]:
        """Whether a put tile goes to another rank."""
        return np.tile(self.work.puts.shift != 0, self.ranks)


@dataclass(frozen=True, slots=True)
class Timing:
    """Simulated times of one launch.

    - `latency_us`: from the launch until the last combine put is visible anywhere and
      all work is done but the epilogue: local work on tokens or slots that no put
      depends on, such as the reduce. In a forward program the combine comes last; in a
      backward one the gradients of weights may. The whole program if it has no combine.
      `layer_us`: until everything is done. `rank_*`: the same per rank; a rank takes
      part in the combine puts that it sends and in those that it receives.
    - `busy_us[unit][rank]`: core-microseconds inside tasks and puts.
      `wait_us[unit][cause][rank]`: blocked, by the name of the event up to "[",
      "barrier" or "launch"; "overhead" is fetching, polling and signalling.
      `idle_us[unit][rank]`: after a core's last step until `layer_us`.
    - `utilization[unit]`: busy time within `latency_us`, over all cores that the
      machine has.
    - `comm_hidden`: of the time in which a rank's links carry rows, the share during
      which at least one of its AIC cores computes; mean over ranks with traffic (1 if
      there is none).
    - `tasks`: task instances, that is (core, compute instruction) with at least one
      tile, and put tiles.
    - `spans`: lifetimes of the buffers on the simulated ranks (see `lifetimes`).
    - `l2_hits`: share of the bytes read that L2 had, by "operator: result";
      `l2_hit_share`: of all bytes read.
    - `ranks_simulated`: fewer than there are if the others repeat them (see `fold`).
    """

    latency_us: float
    layer_us: float
    rank_latency_us: Floats
    rank_layer_us: Floats
    busy_us: dict[str, Floats]
    wait_us: dict[str, dict[str, Floats]]
    idle_us: dict[str, Floats]
    utilization: dict[str, float]
    egress_bytes: Ints
    ingress_bytes: Ints
    hbm_bytes: Floats
    comm_hidden: float
    tasks: int
    ranks_simulated: int
    spans: Spans
    l2_hits: dict[str, float]
    l2_hit_share: float
    trace: TraceData | None = None


def measure(run: Run, *, record: bool) -> Timing:
    """Timing of a run; ConservationError if time or bytes do not add up."""
    ranks = run.ranks
    rank_latency, rank_layer = _rank_times(run)
    latency_us, layer_us = float(rank_latency.max()), float(rank_layer.max())
    busy, wait, idle = _core_times(run, layer_us)
    egress, ingress = _link_bytes(run)
    _check_bytes(run, layer_us)
    every, shares = run.every, hidden_shares(run) * run.copies
    steps = [queue.steps for queue in run.work.queues]
    return Timing(
        latency_us=latency_us,
        layer_us=layer_us,
        rank_latency_us=every(rank_latency),
        rank_layer_us=every(rank_layer),
        busy_us={unit: every(us) for unit, us in busy.items()},
        wait_us={
            unit: {cause: every(us) for cause, us in causes.items()}
            for unit, causes in wait.items()
        },
        idle_us={unit: every(us) for unit, us in idle.items()},
        utilization=_utilization(run, latency_us),
        egress_bytes=every(egress),
        ingress_bytes=every(ingress),
        hbm_bytes=every(run.served[0]),
        comm_hidden=float(np.mean(shares)) if shares else 1.0,
        tasks=_tasks(run) * run.copies,
        ranks_simulated=ranks,
        spans=buffer_spans(run, layer_us),
        l2_hits=hit_rates(run.schedule, steps, run.work.traffic),
        l2_hit_share=_hit_share(run),
        trace=trace_of(run) if record else None,
    )


def _hit_share(run: Run) -> float:
    read = sum(float(mine.read.sum()) for mine in run.work.traffic)
    return hit_rate(sum(float(mine.hit.sum()) for mine in run.work.traffic), read)


def _rank_times(run: Run) -> tuple[Floats, Floats]:
    """Latency and end of every rank."""
    rank_layer = run.done_us.reshape(run.ranks, -1).max(axis=1)
    seen = run.put_delivered + run.machine.event_visible_us
    np.maximum.at(rank_layer, run.put_dest, seen)
    combine = np.tile(run.work.puts.combine, run.ranks)
    if not combine.any():
        return rank_layer.copy(), rank_layer
    rank_latency = _work_ends(run)
    np.maximum.at(rank_latency, run.put_dest[combine], seen[combine])
    np.maximum.at(rank_latency, run.put_source[combine], seen[combine])
    return rank_latency, rank_layer


def _work_ends(run: Run) -> Floats:
    """When each rank's last work ends that is not of the epilogue."""
    spaces = {buffer.name: buffer.space for buffer in run.schedule.buffers}
    last = set(epilogue(flow_nodes(run.schedule), spaces))
    ends = np.zeros(run.ranks)
    for q, queue in enumerate(run.schedule.queues):
        counted: list[int] = []
        for s, step in enumerate(run.work.queues[q].steps):
            instr = queue.code[step.work] if step.work >= 0 else None
            if isinstance(instr, Put | Task) and node_of(instr) not in last:
                counted.append(s)
        latest = run.last_ends(q)[:, counted].max(axis=1, initial=0.0)
        np.maximum(ends, latest, out=ends)
    return ends


def _core_times(
    run: Run, layer_us: float
) -> tuple[dict[str, Floats], dict[str, dict[str, Floats]], dict[str, Floats]]:
    """Busy, waiting and idle time by unit; checks that they fill every core's time."""
    ranks, machine = run.ranks, run.machine
    busy = {unit: np.zeros(ranks) for unit in UNITS}
    idle = {unit: np.zeros(ranks) for unit in UNITS}
    wait: dict[str, dict[str, Floats]] = {unit: {} for unit in UNITS}
    cores = sum(queue.team.size for queue in run.schedule.queues)
    begin_us = launch_us(machine, cores)
    first = 0
    for q, queue in enumerate(run.schedule.queues):
        unit, size = queue.team.unit, queue.team.size
        done = run.done_us.reshape(ranks, -1)[:, first : first + size]
        first += size
        worked = (run.block(run.end, q) - run.block(run.start, q)).sum(axis=2)
        causes = _waits(run, q)
        causes["overhead"] = _polls_us(run, q) + _overhead_us(run, q)
        start = causes.get("launch", np.zeros((ranks, size)))
        causes["launch"] = start + begin_us
        total = worked + sum(causes.values())
        rest = layer_us - done
        lost = np.abs(total + rest - layer_us).max(initial=0.0)
        if lost > TOLERANCE * max(1.0, layer_us) * 1e3:
            raise ConservationError(
                f"queue {q}: busy + waiting + idle misses the makespan by {lost} us"
            )
        busy[unit] += worked.sum(axis=1)
        idle[unit] += rest.sum(axis=1)
        for cause, time in causes.items():
            seen = wait[unit].setdefault(cause, np.zeros(ranks))
            seen += time.sum(axis=1)
    return busy, wait, idle


def _overhead_us(run: Run, q: int) -> float:
    """Fetches and signals of one core of queue q; the same for each."""
    code, machine = run.program.codes[q], run.machine
    sets = sum(len(step.sets) for step in run.work.queues[q].steps)
    return len(code.kinds) * machine.task_fetch_us + sets * machine.event_set_us


def _polls_us(run: Run, q: int) -> Floats:
    """Polls of the events that were closed when a core came, per rank and core."""
    poll_us = [
        run.program.gates[g].poll_us if g != NO_GATE else 0.0
        for g in run.program.codes[q].gates
    ]
    starts, arrivals = run.block(run.start, q), run.block(run.arrive, q)
    pairs = zip(starts, arrivals, strict=True)
    return np.array([(start > arrive) @ np.array(poll_us) for start, arrive in pairs])


def _waits(run: Run, q: int) -> dict[str, Floats]:
    """Time blocked by cause, per rank and core of queue q, polls not included."""
    blocked = run.block(run.start, q) - run.block(run.arrive, q)
    causes: dict[str, Floats] = {}
    for s, g in enumerate(run.program.codes[q].gates):
        if g == NO_GATE:
            continue
        gate, stood = run.program.gates[g], blocked[:, :, s]
        polled_us = np.where(stood > 0, gate.poll_us, 0.0)
        for cause, time in (
            (gate.cause, stood - polled_us - gate.launch_us),
            ("launch", np.full(blocked.shape[:2], gate.launch_us)),
        ):
            if cause != "launch" or gate.launch_us:
                causes[cause] = causes.get(cause, 0.0) + time
    return causes


def _utilization(run: Run, latency_us: float) -> dict[str, float]:
    ranks = run.schedule.layer.ep
    busy = {unit: np.zeros(run.ranks) for unit in UNITS}
    for q, queue in enumerate(run.schedule.queues):
        start = np.minimum(run.block(run.start, q), latency_us)
        end = np.minimum(run.block(run.end, q), latency_us)
        busy[queue.team.unit] += (end - start).sum(axis=2).sum(axis=1)
    return {
        unit: float(run.every(busy[unit]).sum())
        / (run.machine.cores(unit) * ranks * latency_us)
        for unit in UNITS
    }


def _link_bytes(run: Run) -> tuple[Ints, Ints]:
    """Bytes that leave and enter each rank; both from the puts themselves."""
    ranks = run.ranks
    size = run.work.puts.bytes.ravel() * run.put_away
    out = np.bincount(run.put_source, weights=size, minlength=ranks)
    into = np.bincount(run.put_dest, weights=size, minlength=ranks)
    if out.sum() != into.sum():
        raise ConservationError(f"{out.sum()} bytes leave, {into.sum()} arrive")
    return out.astype(np.int64), into.astype(np.int64)


def _check_bytes(run: Run, layer_us: float) -> None:
    """Every byte through its resources once, and none faster than it can go."""
    machine = run.machine
    sent, received = run.served[1].sum(), run.served[2].sum()
    if abs(sent - received) > TOLERANCE * max(sent, 1.0):
        raise ConservationError(f"egress carried {sent} bytes, ingress {received}")
    expected = sum(float(queue.hbm_bytes.sum()) for queue in run.work.queues)
    puts = run.work.puts
    expected += float(puts.fetched.sum()) + float(puts.stored.sum())
    moved = float(run.served[0].sum())
    if abs(expected - moved) > TOLERANCE * expected + NOISE_BYTES:
        raise ConservationError(f"HBM moved {moved} bytes, tasks need {expected}")
    rates = (machine.hbm_gbps, machine.link_gbps, machine.link_gbps)
    for name, rate, served in zip(
        ("HBM", "egress", "ingress"), rates, run.served, strict=True
    ):
        most = rate * 1e3 * layer_us * (1 + TOLERANCE)
        if served.size and served.max() > most:
            raise ConservationError(f"{name} carried {served.max()} of {most} bytes")
    if run.put_delivered.size and run.put_delivered.min() <= 0:
        raise ConservationError("a put was never delivered")


def _tasks(run: Run) -> int:
    count = run.work.puts.bytes.size
    for shares in run.work.queues:
        compute = [step.kind == COMPUTE for step in shares.steps]
        count += int(np.count_nonzero(shares.tiles[:, :, compute]))
    return count
