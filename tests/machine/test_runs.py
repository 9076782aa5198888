"""Every kind of run, on every machine, over sizes from tiny to large: it can be
simulated, not faster than the rates of the record, and without leaps."""

from __future__ import annotations

from functools import cache
from inspect import Parameter, signature

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc.commands.validation import Validator
from hpc.interp import single
from hpc.machine.published import Point, load_points
from hpc.machine.record import Machine, load_machine, machine_names
from hpc.machine.runs import (
    KINDS,
    READ_PER_WRITE,
    VECTOR_OPS,
    Run,
    machine_faults,
    run_faults,
)
from hpc.machine.topology import shift_of
from hpc.schedule.layer import DTYPE_BYTES

DTYPES = st.sampled_from(list(DTYPE_BYTES))
MACHINES = st.sampled_from(machine_names())


@cache
def validator(name: str) -> Validator:
    return Validator(name, load_machine(name), load_points())


def simulated_us(name: str, run: Run) -> float:
    assert run_faults(run) == []
    assert machine_faults(load_machine(name), run) == []
    point = Point(
        "p", (), "s", "fitted", 1.0, "us", 1.0, "", run, {}, {}, lambda *_: "here"
    )
    return validator(name).outcome(point).simulated


def up_to(most: int) -> st.SearchStrategy[int]:
    """1 .. most, as many small numbers as large ones."""
    powers = st.integers(0, most.bit_length() - 1)
    return st.builds(
        lambda power, part: min(most, (1 << power) + int(part * (1 << power))),
        powers,
        st.floats(0, 1, exclude_max=True),
    )


@st.composite
def gmms(draw) -> Run:
    rows, n, k = (draw(up_to(most)) for most in (100_000, 16_384, 16_384))
    groups = draw(up_to(256))
    run = {"rows": rows, "n": n, "k": k, "groups": groups, "dtype": draw(DTYPES)}
    return {"kind": "gmm", **run}


@st.composite
def vectors(draw) -> Run:
    op = draw(st.sampled_from(VECTOR_OPS))
    reads, writes = READ_PER_WRITE.get(op, (draw(st.sampled_from([1, 2, 8])), 1))
    cols = draw(up_to(16_384))
    return {
        "kind": "vector",
        "op": op,
        "rows": draw(up_to(100_000)),
        "read_cols": cols * reads,
        "write_cols": cols * writes,
        "dtype": draw(DTYPES),
        "tile_rows": draw(st.sampled_from([0, 0, 1, 7])),
        "dispatch": draw(st.sampled_from(["static", "dynamic"])),
    }


@st.composite
def pairs(draw) -> Run:
    rows = draw(up_to(50_000))
    return {
        "kind": "pair",
        "rows": rows,
        "cols": draw(up_to(8192)),
        "dtype": draw(DTYPES),
        "blocks": min(rows, draw(st.sampled_from([1, 3, 16, 64]))),
        "interleaved": draw(st.integers(0, 1)),
    }


@st.composite
def exchanges(draw) -> Run:
    """Every rank does the same, so that hundreds of ranks cost no more than one."""
    ep = draw(st.sampled_from([2, 4, 8, 16, 32, 64, 128, 256, 384]))
    experts = ep * draw(st.sampled_from([1, 2]))
    top_k = min(experts, draw(st.sampled_from([1, 2, 8, 16])))
    tokens = experts * draw(st.integers(1, max(1, 4096 // experts)))
    which = draw(st.sampled_from(["dispatch", "combine"]))
    way = draw(st.sampled_from([{}, {"window": 1}, {"counted": 1}]))
    return {
        "kind": "exchange",
        "which": which,
        "tokens": tokens,
        "cols": draw(up_to(16_384)),
        "dtype": draw(DTYPES),
        "ep": ep,
        "experts": experts,
        "top_k": top_k,
        "rows_per_put": draw(st.sampled_from([64, 128])),
        **(way if which == "dispatch" else {}),
    }


RUNS = {"gmm": gmms(), "vector": vectors(), "pair": pairs(), "exchange": exchanges()}
GROWS = {"gmm": "rows", "vector": "rows", "pair": "cols", "exchange": "cols"}


def floor_us(m: Machine, run: Run) -> float:
    """The bytes that must be read, sent, or the products, at the record's rates."""
    size = DTYPE_BYTES[str(run["dtype"])]
    of = {key: value for key, value in run.items() if isinstance(value, int)}
    if run["kind"] == "gmm":
        used = min(of["groups"], of["rows"])
        read = of["rows"] * of["k"] + used * of["n"] * of["k"]
        a_cycle = m.aic_cores * m.cube_m0 * m.cube_n0 * m.cube_k0(str(run["dtype"]))
        products = of["rows"] * of["n"] * of["k"] / a_cycle / m.clock_ghz / 1e3
        return max(products, read * size / m.hbm_gbps / 1e3)
    if run["kind"] == "vector":
        return of["rows"] * of["read_cols"] * size / m.hbm_gbps / 1e3
    if run["kind"] == "pair":
        return of["rows"] * of["cols"] * 3 * size / m.hbm_gbps / 1e3
    shifts = [shift_of(m, of["ep"], k) for k in range(1, of["ep"])]
    inside = sum(s.in_package for s in shifts) / m.package_gbps
    node = sum(s.in_node for s in shifts)
    across = len(shifts) - sum(s.in_package for s in shifts) - node
    outside = node / m.link_gbps + across / m.across_gbps
    sent = of["tokens"] * of["top_k"] * of["cols"] * size / of["ep"]
    return sent * max(inside, outside) / 1e3


MAKERS = {
    "gmm": single.gmm_schedule,
    "vector": single.vector_schedule,
    "pair": single.pair_schedule,
    "exchange": single.exchange_schedule,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_the_table_has_the_settings_of_the_schedule(kind: str) -> None:
    wanted = list(signature(MAKERS[kind]).parameters.values())[1:]
    none = Parameter.empty
    assert [(p.name, p.default) for p in KINDS[kind]] == [
        (p.name, None if p.default is none else p.default) for p in wanted
    ]


@pytest.mark.parametrize("kind", RUNS)
def test_no_run_is_faster_than_the_hardware_nor_leaps(kind: str) -> None:
    @settings(derandomize=True, deadline=None, max_examples=40)
    @given(MACHINES, RUNS[kind])
    def check(name: str, run: Run) -> None:
        time_us = simulated_us(name, run)
        assert time_us >= floor_us(load_machine(name), run) * (1 - 1e-9)
        key = GROWS[kind]
        old = int(run[key])
        larger = old + old // 50 + 1
        growth = simulated_us(name, {**run, key: larger}) / time_us
        assert 1 / 1.5 < growth < 1.5 * larger / old

    check()
