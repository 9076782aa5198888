"""Every queue of every rank reaches its end; if not, why, down to the root cause."""

from __future__ import annotations

from collections.abc import Sequence

from hpc.schedule.checks.cycles import cycles
from hpc.schedule.checks.hang import Hang
from hpc.schedule.checks.index import Violation
from hpc.schedule.checks.replay import Lost, Node, Replay
from hpc.schedule.model import Schedule, Wait

CHECK = "deadlock"
RULES = {
    "deadlock-signal": "A wait asks for no more signals than its counter can get.",
    "deadlock-cycle": "Queues do not wait for each other in a circle, across ranks.",
    "deadlock-barrier": "Every queue in a barrier's scope has that barrier.",
}


def check_deadlock(
    s: Schedule,
    programs: Sequence[Schedule] | None = None,
    lost: frozenset[Lost] = frozenset(),
) -> list[Violation]:
    """One violation for each root cause of a hang; none if all queues end.

    `programs` has the program of each rank, where they differ; `lost` are signals to
    drop. Without both, one rank stands for all (see `replay`).
    """
    if programs is None:
        programs = [s] * s.layer.ep if lost else [s]
    replay = Replay(programs, lost)
    replay.run()
    return _violations(Hang(replay)) if replay.blocked else []


def _violations(hang: Hang) -> list[Violation]:
    found: list[Violation] = []
    for node in hang.blocked:
        if isinstance(hang.at(node), Wait):
            if hang.most(node) < hang.need(node):
                found.append(_signal(hang, node))
        elif hang.lacking(node):
            found.append(_barrier(hang, node))
    found += [_cycle(hang, cycle) for cycle in cycles(hang.needs)]
    assert found, "a queue is blocked, but neither a root nor a cycle explains it"
    return found


def _signal(hang: Hang, node: Node) -> Violation:
    """A wait whose threshold is out of reach."""
    have, most, need = hang.have(node), hang.most(node), hang.need(node)
    event = hang.event_text(node)
    lines = [f"{hang.label(node)}, has {have}"]
    for producer in hang.sent(node):
        lines.append(f"  {producer.signals} came from {hang.producer_text(producer)}")
    for producer in hang.pending(node):
        lines.append(
            f"  {producer.signals} would come from {hang.producer_text(producer)}, "
            "which is not reached"
        )
        lines.append(f"    it is blocked: {hang.label(producer.node)}")
    lines += [f"  lost: {text}" for text in hang.lost_texts(node)]
    lines.append(f"  nothing brings the other {need - most}")
    message = (
        f"{hang.where(node)} waits for ever: {event} needs {need}, "
        f"has {have}, and at most {most} can arrive"
    )
    return hang.violation(
        CHECK, "deadlock-signal", message, node, lines + hang.behind([node])
    )


def _barrier(hang: Hang, node: Node) -> Violation:
    """A barrier that some queue never comes to."""
    lines = [hang.label(node)]
    for mate in hang.lacking(node):
        at = "has ended" if hang.ended(mate) else f"has none after {hang.at_text(mate)}"
        lines.append(f"  never comes: {hang.queue_text(mate)}, which {at}")
    message = f"{hang.where(node)} waits for ever at a barrier that not all queues have"
    return hang.violation(
        CHECK, "deadlock-barrier", message, node, lines + hang.behind([node])
    )


def _cycle(hang: Hang, cycle: list[Node]) -> Violation:
    """Queues that wait for each other."""
    lines: list[str] = []
    for node, follower in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        lines.append(hang.state_text(node))
        lines.append(f"  needs {hang.reason(node, follower)}")
    lines.append(f"which closes the cycle: {hang.queue_text(cycle[0])}")
    queues = f"{len(cycle)} queues wait" if len(cycle) > 1 else "a queue waits"
    return hang.violation(
        CHECK,
        "deadlock-cycle",
        f"{queues} in a cycle, first {hang.where(cycle[0])}",
        cycle[0],
        lines + hang.behind(cycle),
    )
