"""What the whole pipeline promises: counters fit, pins hold, every flow compiles."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from xdsl.utils.exceptions import DiagnosticException

from hpc.interp.routing import routing_counts
from hpc.machine.record import load_machine
from hpc.schedule.check import Limits, check_schedule
from hpc.schedule.model import Put, Schedule, Set, Task, Wait
from passes.pipeline import default_pipeline
from passes.target_ssc import SscTarget
from passes.to_schedule import to_schedule
from tests.passes.support import (
    POLICIES,
    TINY,
    TWO_GROUPS,
    context,
    from_spec,
    lower,
    parse,
    show,
    specs,
    steps,
)

LIMITS = Limits.of(load_machine("ascend_a3"))


def compiled(text: str, policy: str = "list", options: str = "") -> Schedule:
    """The schedule of `.moe` text; `options` replaces a pass text ."""
    pipeline = default_pipeline(policy)
    if options:
        name = options.split("{")[0]
        pipeline = ",".join(options if s == name else s for s in steps(policy))
    program = next(iter(from_spec(text, pipeline).ops))
    return to_schedule(program)  # pyright: ignore[reportArgumentType]


def safe(schedule: Schedule) -> bool:
    """Whether every check holds; an assertion shows the violations."""
    counts = routing_counts(schedule.layer, schedule.routing)
    report = check_schedule(schedule, LIMITS, counts)
    assert report.violations == ()
    return report.ok


def layer(ep: int, experts: int, tail: str = "") -> str:
    text = TINY.replace("experts = 4", f"experts = {experts}")
    return text.replace("ep = 2", f"ep = {ep}") + tail


@settings(max_examples=12)
@given(specs())
def test_every_layer_compiles_to_a_safe_schedule(text: str) -> None:
    for policy in POLICIES:
        assert safe(compiled(text, policy))


@cache
def crowded(ep: int, experts: int, policy: str) -> Schedule:
    return compiled(layer(ep, experts), policy)


@pytest.mark.parametrize(("ep", "experts"), [(1, 512), (1, 260), (8, 512)])
@pytest.mark.parametrize("policy", ["paper", "list"])
def test_counters_fit_the_machine(ep: int, experts: int, policy: str) -> None:
    """Up to 512 experts on a rank need more counters than there are: experts share."""
    schedule = crowded(ep, experts, policy)
    assert len(schedule.events) <= LIMITS.max_events
    assert [event.id for event in schedule.events] == list(range(len(schedule.events)))
    assert safe(schedule)


def test_barriers_need_no_counters() -> None:
    assert crowded(1, 512, "serial").events == ()


@pytest.mark.parametrize("limit", [7, 11, 40])
def test_counters_shared_by_experts_are_safe(limit: int) -> None:
    """Twelve experts need 49 counters one by one; thresholds are sums when shared."""
    options = f"npu-allocate-events{{limit={limit}}}"
    schedule = compiled(layer(1, 12), "paper", options)
    assert len(schedule.events) <= limit
    waits = [i for q in schedule.queues for i in q.code if isinstance(i, Wait)]
    needs = {event.id: event.need for event in schedule.events}
    assert all(wait.need == needs[wait.event] for wait in waits)
    shared = [event for event in schedule.events if "+" in event.name]
    assert shared
    assert safe(schedule)


def test_a_crowded_layer_goes_operator_by_operator() -> None:
    """Where experts share counters, a wait for one expert waits for its neighbours."""
    schedule = crowded(1, 512, "list")
    (cube,) = [q for q in schedule.queues if q.team.unit == "aic"]
    written = [i.writes[0].buffer for i in cube.code if isinstance(i, Task)]
    assert written == ["h"] * 512 + ["y"] * 512


PINS = [
    ("policy = serial", lambda s: s.policy == "serial"),
    ("groups = 2", lambda s: len(s.groups) == 2),
    ("row_chunks = 3", lambda s: {p.chunks for p in puts(s)} == {3}),
    ("base_tile = 32x48x64", lambda s: {t.base.n for t in gmms(s)} == {48}),
    ("aic = 7", lambda s: 7 in team_sizes(s)),
    ("comm_aiv = 5", lambda s: 5 in team_sizes(s)),
    ("vector_aiv = 9", lambda s: 9 in team_sizes(s)),
]


def puts(schedule: Schedule) -> list[Put]:
    return [i for q in schedule.queues for i in q.code if isinstance(i, Put)]


def gmms(schedule: Schedule) -> list[Task]:
    tasks = (i for q in schedule.queues for i in q.code if isinstance(i, Task))
    return [task for task in tasks if task.op == "gmm"]


def team_sizes(schedule: Schedule) -> set[int]:
    return {queue.team.size for queue in schedule.queues}


@pytest.mark.parametrize(("pin", "holds"), PINS, ids=[p[0] for p in PINS])
def test_a_pin_is_honoured(pin: str, holds) -> None:  # pyright: ignore
    text = f"{TINY} schedule {{ {pin} }}"
    pipeline = default_pipeline("list").replace("{policy=list}", "")
    program = next(iter(from_spec(text, pipeline).ops))
    schedule = to_schedule(program)  # pyright: ignore[reportArgumentType]
    assert holds(schedule)
    assert safe(schedule)


def test_an_option_goes_before_a_pin() -> None:
    text = TINY + "schedule { groups = 2 row_chunks = 3 aic = 7 }"
    for options, holds in (
        ("moe-tile{policy=list groups=1}", lambda s: len(s.groups) == 1),
        ("tile-lower-comm{chunks=2}", lambda s: {p.chunks for p in puts(s)} == {2}),
        ("tile-place{aic=3}", lambda s: 3 in team_sizes(s)),
    ):
        name = options.split("{")[0]
        pipeline = ",".join(
            options if step.split("{")[0] == name else step for step in steps("list")
        )
        program = next(iter(from_spec(text, pipeline).ops))
        assert holds(to_schedule(program))  # pyright: ignore


FLOWS = {
    "ends in routed rows": "h = gmm(dispatch(x), w_up)",
    "ends in slots": "b = combine(dispatch(x))",
    "dispatch alone": "r = dispatch(x)",
    "no matrix": "o = reduce(combine(dispatch(x)))",
    "two dispatches": """input z : tokens x hidden
        s = add(dispatch(x), dispatch(z)) o = reduce(combine(s))""",
    "two layers": """p = reduce(combine(dispatch(x)))
        o = reduce(combine(dispatch(p)))""",
    "residual": "o = add(x, reduce(combine(dispatch(x))))",
    "one value twice": "r = dispatch(x) o = reduce(combine(add(r, r)))",
    "before and after": "r = dispatch(relu(x)) o = gelu(reduce(combine(r)))",
    "no communication": "o = relu(add(x, x))",
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS.keys())
def test_every_flow_compiles_to_a_safe_schedule(flow: str, policy: str) -> None:
    for base in (TINY, TWO_GROUPS):
        assert safe(compiled(f"{base} flow {{ {flow} }}", policy))


def test_nobody_signals_what_nobody_waits_for() -> None:
    for policy in POLICIES:
        schedule = compiled(TWO_GROUPS, policy)
        code = [i for queue in schedule.queues for i in queue.code]
        waited = {i.event for i in code if isinstance(i, Wait)}
        signalled = {i.event for i in code if isinstance(i, Set | Put)} - {None}
        assert waited == signalled


def test_the_file_target_refuses_two_programs() -> None:
    body = show(from_spec(TINY)).removeprefix("builtin.module {").removesuffix("}")
    twice = parse(f"builtin.module {{ {body} {body.replace('@tiny', '@other')} }}")
    lower(twice, default_pipeline("list"))
    with pytest.raises(
        DiagnosticException, match="holds one program, the module has 2"
    ):
        SscTarget().emit(context(), twice, None)  # pyright: ignore
