"""Where rows lie, with real tokens."""

from __future__ import annotations

from itertools import chain

import numpy as np

from hpc.interp.placement import Placement, numbers
from hpc.schedule.layer import Layer
from hpc.schedule.model import Buffer, Region
from tests.builders import small_layer, standard_schedule
from tests.values.cases import Ids, random_ids

LAYER: Layer = small_layer(tokens=(300, 40, 0, 77), ep=4, experts=10)
GROUPS = ((0, 2), (3,), (1,))
IDS: Ids = random_ids(LAYER, 1, unsent=0.2)
SCHEDULE = standard_schedule(LAYER, GROUPS)
PLACEMENT = Placement(SCHEDULE, IDS)


def test_slots_are_those_of_the_expert_in_ascending_order() -> None:
    for source in range(LAYER.ep):
        flat = IDS[source].ravel()
        for owner in range(LAYER.ep):
            for local in range(LAYER.local_experts):
                expert = PLACEMENT.global_expert(owner, local)
                wanted = np.flatnonzero(flat == (-9 if expert is None else expert))
                assert PLACEMENT.slots(source, owner, local).tolist() == wanted.tolist()


def test_received_rows_fill_the_buffer_in_the_stated_order() -> None:
    """Local expert, then group, then the group's ks: without a gap or an overlap."""
    for rank in range(LAYER.ep):
        row = 0
        for local in range(LAYER.local_experts):
            for k in (k for ks in GROUPS for k in ks):
                rows = PLACEMENT.received_from(rank, local, k)
                assert rows.start == row
                row = rows.stop
        assert row == PLACEMENT.received[rank]


def rows_of(name: str, expert: int | None, part: int | None, rank: int) -> list[int]:
    region = Region(name, expert, part)
    buffer = SCHEDULE.buffer(name)
    return numbers(PLACEMENT.region_rows(buffer, region, rank)).tolist()


def test_parts_partition_every_space() -> None:
    pairs = [(e, g) for e in range(LAYER.local_experts) for g in range(len(GROUPS))]
    for rank in range(LAYER.ep):
        for name in ("recv", "back"):
            parts = [r for e, g in pairs for r in rows_of(name, e, g, rank)]
            wanted = range(PLACEMENT.received[rank])
            if name == "back":
                wanted = np.flatnonzero(PLACEMENT.sent[rank]).tolist()
            assert sorted(parts) == list(wanted)


def test_a_region_of_one_group_or_one_expert_is_the_union_of_its_parts() -> None:
    for name in ("recv", "back"):
        by_group = [rows_of(name, e, 1, 0) for e in range(LAYER.local_experts)]
        assert rows_of(name, None, 1, 0) == sorted(chain(*by_group))
        by_expert = [rows_of(name, 2, g, 0) for g in range(len(GROUPS))]
        assert rows_of(name, 2, None, 0) == sorted(chain(*by_expert))


def test_all_rows_of_an_expert_are_in_the_order_of_their_distance() -> None:
    """By k, whatever the groups: here k = 2 lies in front of 1 and 3."""
    for rank in range(LAYER.ep):
        for local in range(LAYER.local_experts):
            rows = numbers(PLACEMENT.expert_rows(rank, local)).tolist()
            wanted = [
                row
                for k in range(LAYER.ep)
                for row in numbers(PLACEMENT.received_from(rank, local, k)).tolist()
            ]
            assert rows == wanted
            assert sorted(rows) == sorted(rows_of("recv", local, None, rank))
    assert PLACEMENT.global_expert(3, 2) is None
    assert numbers(PLACEMENT.expert_rows(3, 2)).tolist() == []


def test_matrices_lie_below_each_other() -> None:
    buffer = Buffer("dw", "weight", 8, "bf16", "output", 3, rows=5)
    rows = [PLACEMENT.region_rows(buffer, Region("dw", e), 0) for e in (0, 1, 2)]
    assert rows == [slice(0, 5), slice(5, 10), slice(10, 15)]
    assert PLACEMENT.region_rows(buffer, Region("dw"), 3) == slice(0, 15)


def test_rows_go_out_and_come_home() -> None:
    """What lies by slot goes to the experts and back unchanged."""
    rng = np.random.default_rng(0)
    home = [rng.random((t * LAYER.top_k, 3)) for t in LAYER.tokens]
    there = [PLACEMENT.at_expert(home, rank) for rank in range(LAYER.ep)]
    assert sum(map(len, there)) == sum(int(sent.sum()) for sent in PLACEMENT.sent)
    back = PLACEMENT.by_slot(there)
    for rank, values in enumerate(home):
        sent = PLACEMENT.sent[rank]
        assert (back[rank][sent] == values[sent]).all()
        assert not back[rank][~sent].any()


def test_rows_come_home() -> None:
    """Routed rows that carry their own (source, slot) return to it."""
    home: list[np.ndarray] = []
    for rank in range(LAYER.ep):
        rows = np.zeros((PLACEMENT.received[rank], 2))
        for local in range(LAYER.local_experts):
            for k in range(LAYER.ep):
                source = (rank - k) % LAYER.ep
                slots = PLACEMENT.slots(source, rank, local)
                at = PLACEMENT.received_from(rank, local, k)
                rows[at, 0], rows[at, 1] = source + 1, slots
        home.append(rows)
    for source, rows in enumerate(PLACEMENT.by_slot(home)):
        sent = PLACEMENT.sent[source]
        assert (rows[sent, 0] == source + 1).all()
        assert (rows[sent, 1] == np.flatnonzero(sent)).all()
        assert not rows[~sent].any()
