"""Into how many pieces puts are cut: skewed rows are shared by many cores, others are
cut as the policy says, or finer where that fills the team."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passes.program
from hpc.driver import compile_file, compile_text
from hpc.interp.engine import simulate
from hpc.interp.routing import routing_counts
from hpc.machine.record import load_machine
from hpc.schedule.check import Limits, check_schedule
from hpc.schedule.layer import Layer, Routing, owner_of
from hpc.schedule.model import Put, Schedule
from hpc.schedule.policy import POLICIES

MACHINE = load_machine("ascend_a3")
SAMPLES = Path(__file__).parent.parent.parent / "samples"


def text(
    tokens: int,
    ep: int,
    routing: str,
    experts: int | None = None,
    top_k: int = 2,
    tail: str = "",
) -> str:
    """A layer with narrow matrices, in which puts are most of the work."""
    return f"""layer narrow {{
  tokens = {tokens} hidden = 2048 intermediate = 768
  experts = {experts or 4 * ep} top_k = {top_k} activation = swiglu dtype = bf16
}}
parallel {{ ep = {ep} }}
machine = ascend_a3
routing = {routing}
{tail}
"""


def compiled(spec: str, policy: str) -> Schedule:
    return compile_text(spec.encode(), "test.moe", policy=policy).schedule


def puts(schedule: Schedule) -> list[tuple[Put, int]]:
    """Every put with the size of its team."""
    return [
        (instr, queue.team.size)
        for queue in schedule.queues
        for instr in queue.code
        if isinstance(instr, Put)
    ]


def chunks(schedule: Schedule) -> set[int]:
    return {put.chunks for put, _ in puts(schedule)}


def most_rows(schedule: Schedule, counts: np.ndarray, put: Put) -> int:
    """Rows of the largest pair that the put serves, found one by one."""
    layer = schedule.layer
    return max(
        int(counts[source, expert])
        for source in range(layer.ep)
        for expert in range(layer.experts)
        for rank, local in [owner_of(expert, layer.experts, layer.ep)]
        if local == put.expert
        if (rank - source) % layer.ep in schedule.groups[put.group]
    )


@pytest.mark.parametrize("policy", ["paper", "list"])
def test_only_puts_that_meet_the_hot_expert_are_cut_finer(policy: str) -> None:
    """One of 32 experts gets a row of every token: from every rank 512, where the mean
    is 32. The others are cut as without it."""
    schedule = compiled(text(512, 8, "hot(1, 0.5)"), policy)
    (even,) = chunks(compiled(text(512, 8, "balanced"), policy))
    counts = routing_counts(schedule.layer, schedule.routing)
    _, hot = owner_of(int(counts.sum(axis=0).argmax()), 32, 8)
    for put, cores in puts(schedule):
        assert put.chunks == (cores if put.expert == hot else even)


BALANCED = [
    # (tokens, ranks, experts, choices): rows per source below, between and above pieces
    (8, 2, 4, 2),
    (512, 4, 16, 2),
    (515, 4, 16, 2),
    (1026, 8, 32, 2),
    (4096, 8, 64, 8),
    (1000, 8, 60, 4),
]


@pytest.mark.parametrize("policy", ["serial", "paper"])
@pytest.mark.parametrize(("tokens", "ep", "experts", "top_k"), BALANCED)
def test_even_rows_keep_the_rows_per_put_of_the_policy(
    tokens: int, ep: int, experts: int, top_k: int, policy: str
) -> None:
    """Dealt like cards, experts differ by a row: that is no skew."""
    schedule = compiled(text(tokens, ep, "balanced", experts, top_k), policy)
    rows = round(tokens * top_k / experts)
    assert chunks(schedule) == {max(1, -(-rows // POLICIES[policy].put_rows))}


@pytest.mark.parametrize(
    ("tokens", "ep", "experts", "top_k"), [(4096, 8, 64, 8), (1024, 16, 256, 8)]
)
def test_puts_that_occupy_all_cores_stay_as_they_are(
    tokens: int, ep: int, experts: int, top_k: int
) -> None:
    schedule = compiled(text(tokens, ep, "balanced", experts, top_k), "list")
    assert chunks(schedule) == {-(-tokens * top_k // experts // 64)}


def test_an_idle_team_is_filled() -> None:
    """Twelve puts of 64 rows to other ranks would be the work of twelve cores."""
    (cut,) = chunks(compiled(text(512, 4, "balanced"), "list"))
    assert 4 <= cut <= 24


def test_pins_and_collectives_do_not_care_about_the_routing() -> None:
    pinned = text(512, 4, "hot(1, 0.5)", tail="schedule { row_chunks = 3 }")
    assert chunks(compiled(pinned, "list")) == {3}
    assert chunks(compiled(text(512, 4, "hot(1, 0.5)"), "serial")) == {1}


SKEWED = st.sampled_from(
    (
        "uniform(seed = 3)",
        "zipf(0.8, seed = 1)",
        "zipf(3.0, seed = 2)",
        "hot(1, 0.4)",
        "hot(2, 0.5, seed = 4)",
        "one_rank(0)",
    )
)


@settings(max_examples=20)
@given(
    SKEWED,
    st.integers(1, 4),
    st.integers(1, 2000),
    st.sampled_from(("paper", "list")),
    st.booleans(),
)
def test_pieces_stay_within_rows_cores_and_policy(
    routing: str, ep: int, tokens: int, policy: str, train: bool
) -> None:
    """Never fewer pieces than the policy's number; more only up to one for each core,
    none of them empty for the largest pair. The result is safe."""
    tail = "mode = train" if train else ""
    schedule = compiled(text(tokens, ep, routing, 5, 2, tail), policy)
    counts = routing_counts(schedule.layer, schedule.routing)
    even = max(1, -(-round(tokens * 2 / 5) // POLICIES[policy].put_rows))
    for put, cores in puts(schedule):
        rows = most_rows(schedule, counts, put)
        assert even <= put.chunks <= max(even, min(cores, rows))
        if rows < tokens * 2 / 5 + 1 and policy == "paper":
            assert put.chunks == even
    assert check_schedule(schedule, Limits.of(MACHINE), counts).ok


@pytest.mark.parametrize("tokens", [2_000, 200_000, 1_000_000])
def test_more_rows_do_not_mean_more_and_more_pieces(tokens: int) -> None:
    """Tasks are bounded by cores and not by the rows of a table."""
    table = f"table [[{tokens}, 0, 0, 0], [0, {tokens}, 0, 0]]"
    schedule = compiled(text(tokens, 2, table, 4, 1), "list")
    even = -(-tokens // 4 // POLICIES["list"].put_rows)
    assert max(chunks(schedule)) <= max(24, even)


@cache
def latency_us(spec: str, policy: str) -> float:
    """Simulated, from dispatch to combine."""
    schedule = compiled(spec, policy)
    counts = routing_counts(schedule.layer, schedule.routing)
    return simulate(schedule, counts, MACHINE).latency_us


LAYERS = [
    (tokens, ep, routing)
    for tokens, ep in ((512, 4), (2048, 4), (512, 8), (2048, 8))
    for routing in ("hot(1, 0.5)", "hot(4, 0.5)", "zipf(1.2, seed = 7)")
]


@pytest.mark.parametrize(("tokens", "ep", "routing"), LAYERS)
def test_skew_does_not_make_list_slower_than_serial(
    tokens: int, ep: int, routing: str
) -> None:
    """With pieces for mean rows it took up to three times as long."""
    spec = text(tokens, ep, routing)
    assert latency_us(spec, "list") < latency_us(spec, "serial")


def random_layers(count: int) -> list[tuple[int, int, int, int, str]]:
    """(tokens, ranks, experts, choices, mode) of small layers, always the same."""
    draw = Random(9)
    found: list[tuple[int, int, int, int, str]] = []
    while len(found) < count:
        ep, local = draw.choice((1, 2, 4, 8, 16)), draw.choice((1, 2, 4, 8))
        tokens = draw.randint(8, 4096)
        top_k = min(draw.choice((1, 2, 8)), ep * local)
        mode = draw.choice(("forward", "forward", "backward", "train"))
        if 1 < tokens * top_k / (ep * local) < 1024:
            found.append((tokens, ep, ep * local, top_k, mode))
    return found


def gain(tokens: int, ep: int, experts: int, top_k: int, mode: str) -> float:
    """Latency of `list` over that with the policy's number of pieces."""
    cut = -(-round(tokens * top_k / experts) // POLICIES["list"].put_rows)
    tail = f"mode = {mode}"
    filled = text(tokens, ep, "balanced", experts, top_k, tail)
    pinned = text(
        tokens,
        ep,
        "balanced",
        experts,
        top_k,
        f"{tail} schedule {{ row_chunks = {cut} }}",
    )
    return latency_us(filled, "list") / latency_us(pinned, "list")


@pytest.mark.parametrize("layer", random_layers(24), ids=str)
def test_filling_a_team_never_costs(layer: tuple[int, int, int, int, str]) -> None:
    assert gain(*layer) <= 1.02


@pytest.mark.parametrize("routing", ["uniform(seed = 5)", "hot(1, 0.3)"])
def test_a_team_is_filled_beside_skew_too(routing: str) -> None:
    spec = text(318, 2, routing, 8, 1)
    coarse = text(318, 2, routing, 8, 1, "schedule { row_chunks = 1 }")
    assert latency_us(spec, "list") < 0.8 * latency_us(coarse, "list")


@pytest.mark.parametrize(
    ("tokens", "ep", "experts", "top_k", "mode", "most"),
    [
        (512, 4, 16, 2, "forward", 0.6),
        (128, 2, 4, 2, "forward", 0.5),
        (1024, 4, 16, 1, "train", 0.8),
        (256, 2, 4, 1, "backward", 0.7),
        # Own rows and rows for the other rank alternate in step with the team.
        (2048, 2, 64, 2, "forward", 0.85),
        (512, 1, 2, 1, "forward", 0.95),
    ],
)
def test_small_balanced_layers_fill_the_team(
    tokens: int, ep: int, experts: int, top_k: int, mode: str, most: float
) -> None:
    assert gain(tokens, ep, experts, top_k, mode) < most


@pytest.mark.parametrize("name", ["mixtral_8x7b_ep8", "qwen3_30b_ep8"])
def test_list_and_paper_beat_serial_on_measured_routing(name: str) -> None:
    took: dict[str, float] = {}
    for policy in ("serial", "paper", "list"):
        schedule = compile_file(SAMPLES / f"{name}.moe", policy=policy).schedule
        counts = routing_counts(schedule.layer, schedule.routing)
        took[policy] = simulate(schedule, counts, MACHINE).latency_us
    assert took["list"] < took["serial"]
    assert took["paper"] < took["serial"]


def test_what_was_cut_for_one_routing_is_safe_under_others() -> None:
    """Thresholds follow from the pieces, not from the rows."""
    schedule = compiled(text(64, 4, "hot(1, 0.5)"), "list")
    layer = schedule.layer
    for routing in (Routing("balanced"), Routing("uniform", (("seed", 5.0),))):
        counts = routing_counts(layer, routing)
        assert check_schedule(schedule, Limits.of(MACHINE), counts).ok
        assert simulate(schedule, counts, MACHINE).latency_us > 0


def test_a_routing_is_drawn_once_for_all_passes_and_policies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drawing is most of the compilation where tables are large."""
    drawn: list[Routing] = []

    def draw(layer: Layer, routing: Routing) -> np.ndarray:
        drawn.append(routing)
        return routing_counts(layer, routing)

    monkeypatch.setattr(passes.program, "routing_counts", draw)
    spec = text(8, 2, "zipf(1.3, seed = 91)")
    for policy in ("serial", "paper", "list"):
        compiled(spec, policy)
    assert len(drawn) == 1
    compiled(text(8, 2, "zipf(1.3, seed = 92)"), "list")
    assert len(drawn) == 2
