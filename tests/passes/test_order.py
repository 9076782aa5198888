"""Laws of groups and static orders, on random programs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc.schedule.order import (
    Work,
    first_early,
    l2_hit_bytes,
    list_order,
    makespan_us,
    stage_order,
)
from hpc.schedule.policy import (
    EVENTS_PER_PART,
    POLICIES,
    choose_groups,
    partition,
)

L2 = 1000


@st.composite
def programs(draw: st.DrawFn) -> list[Work]:
    """Works whose dependencies are earlier works, on up to four teams."""
    works: list[Work] = []
    for i in range(draw(st.integers(1, 14))):
        deps = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set[int]()
        works.append(
            Work(
                stage=draw(st.integers(0, 4)),
                expert=draw(st.integers(0, 3)),
                part=draw(st.integers(0, 2)),
                team=draw(st.integers(0, 3)),
                duration_us=draw(st.integers(0, 8)),
                deps=tuple(sorted(deps)),
                delay_us=draw(st.sampled_from((0.0, 1.5))),
                exchange=draw(st.booleans()),
                leaf=draw(st.booleans()),
                touches=((f"r{draw(st.integers(0, 2))}", 400),),
            )
        )
    return works


def layered(works: list[Work]) -> list[Work]:
    """The same with stages as in a flow: behind those of all dependencies."""
    stages: list[int] = []
    for work in works:
        stages.append(max((stages[d] + 1 for d in work.deps), default=0))
    return [
        Work(s, w.expert, w.part, w.team, w.duration_us, w.deps, w.delay_us, w.exchange)
        for w, s in zip(works, stages, strict=True)
    ]


def critical_path_us(works: list[Work]) -> float:
    ends: list[float] = []
    for work in works:
        start = max((ends[d] for d in work.deps), default=0.0)
        ends.append(start + work.duration_us + work.delay_us)
    return max(ends)


@given(programs())
def test_list_order_is_a_permutation_with_dependencies_first(works: list[Work]) -> None:
    order = list_order(works, L2)
    assert sorted(order) == list(range(len(works)))
    assert first_early(works, order) is None


@given(programs())
def test_list_order_keeps_the_bounds_of_its_model(works: list[Work]) -> None:
    """At least the longest chain and the busiest team, at most one after the other."""
    found = makespan_us(works, list_order(works, L2))
    teams = {w.team for w in works}
    busiest = max(sum(w.duration_us for w in works if w.team == t) for t in teams)
    assert found >= max(critical_path_us(works), busiest) - 1e-9
    assert found <= sum(w.duration_us + w.delay_us for w in works) + 1e-9


@given(programs())
def test_list_order_is_never_modelled_slower_than_operator_by_operator(
    works: list[Work],
) -> None:
    """With exchanges a fifth slower than planned, and up to a thousandth."""
    works = layered(works)
    slow = [
        replace(w, duration_us=w.duration_us * 1.2) if w.exchange else w for w in works
    ]
    found = makespan_us(slow, list_order(works, L2))
    assert found <= makespan_us(slow, stage_order(works)) * 1.001


def test_orders_that_last_as_long_differ_by_what_they_find_in_l2() -> None:
    """A leaf that reads what another work just read runs next to it."""

    def work(deps: tuple[int, ...], rows: str, leaf: bool) -> Work:
        return Work(1, 0, 0, 0, 4.0, deps, leaf=leaf, touches=((rows, 60),))

    works = [
        work((), "a", False),
        work((), "a", True),
        work((), "b", False),
        work((), "b", True),
    ]
    assert l2_hit_bytes(works, (0, 1, 2, 3), 100) == 120
    assert l2_hit_bytes(works, (0, 2, 1, 3), 100) == 0
    assert l2_hit_bytes(works, (0, 2, 1, 3), 120) == 120
    assert l2_hit_bytes(works, (0, 1, 2, 3), 50) == 0
    assert list_order(works, 100) == (0, 1, 2, 3)


@given(programs())
def test_stage_order_keeps_dependencies_of_a_flow(works: list[Work]) -> None:
    works = layered(works)
    order = stage_order(works)
    assert sorted(order) == list(range(len(works)))
    assert first_early(works, order) is None
    keys = [(works[i].stage, works[i].expert, works[i].part) for i in order]
    assert keys == sorted(keys)


def test_an_order_that_cannot_keep_dependencies_is_not_a_candidate() -> None:
    """The late work has the earlier stage; operator by operator would run it first."""
    works = [Work(1, 0, 0, 0, 1.0, ()), Work(0, 0, 0, 0, 1.0, (0,))]
    assert first_early(works, stage_order(works)) == 1
    assert list_order(works, L2) == (0, 1)


def test_a_cycle_is_an_error() -> None:
    works = [Work(0, 0, 0, 0, 1.0, (1,)), Work(0, 0, 0, 0, 1.0, (0,))]
    with pytest.raises(ValueError, match="cycle"):
        list_order(works, L2)


def test_own_rows_are_sent_before_remote_rows_of_earlier_experts() -> None:
    """Only own rows first keeps both teams busy: they are there sooner."""
    puts = [
        Work(0, e, p, 0, 9.0 if p else 1.0, (), exchange=True)
        for e in range(2)
        for p in range(2)
    ]
    tasks = [Work(1, w.expert, w.part, 1, 5.0, (i,)) for i, w in enumerate(puts)]
    order = [i for i in list_order([*puts, *tasks], L2) if i < len(puts)]
    assert [puts[i].part for i in order] == [0, 0, 1, 1]


def test_a_team_takes_the_work_that_became_ready_first() -> None:
    slow, fast = Work(0, 0, 0, 0, 9.0, ()), Work(0, 1, 0, 1, 1.0, ())
    users = [Work(1, 0, 0, 2, 4.0, (0,)), Work(1, 1, 0, 2, 4.0, (1,))]
    works = [slow, fast, *users]
    assert makespan_us(works, list_order(works, L2)) == 13.0
    assert makespan_us(works, stage_order(works)) == 17.0


@given(st.integers(1, 64), st.data())
def test_groups_are_a_partition_with_own_rows_first(ep: int, data: st.DataObject):
    groups = data.draw(st.integers(1, ep))
    parts = partition(ep, groups)
    assert len(parts) == groups
    assert list(chain(*parts)) == list(range(ep))
    if groups == 1:
        return
    assert parts[0] == (0,)
    sizes = [len(part) for part in parts[1:]]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("groups", [0, -1, 9])
def test_an_impossible_number_of_groups_is_an_error(groups: int) -> None:
    with pytest.raises(ValueError, match=f"groups must be 1..8, got {groups}"):
        partition(8, groups)


@given(
    st.integers(1, 512),
    st.integers(1, 512),
    st.floats(0, 1e6),
    st.sampled_from((1, 16, 1024)),
    st.sampled_from(sorted(EVENTS_PER_PART)),
)
def test_chosen_groups_fit_ranks_and_counters(
    ep: int, experts: int, rows: float, limit: int, mode: str
) -> None:
    groups = choose_groups(ep, experts, rows, limit, mode)
    assert 1 <= groups <= ep
    assert groups == 1 or EVENTS_PER_PART[mode] * experts * groups < limit


@given(st.integers(1, 64), st.integers(1, 64), st.floats(0, 1e5))
def test_more_rows_never_mean_fewer_groups(ep: int, experts: int, rows: float) -> None:
    few = choose_groups(ep, experts, rows, 1024)
    assert choose_groups(ep, experts, 2 * rows, 1024) >= few


def test_policies_are_known_by_their_name() -> None:
    assert list(POLICIES) == ["serial", "paper", "list"]
    assert all(policy.name == name for name, policy in POLICIES.items())
