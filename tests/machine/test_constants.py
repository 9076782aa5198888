"""Constants of a user's record, one at a time: each does to the result what it should.

A schedule is made for the shipped record and timed on a copy of it in which one figure
is half or twice as large: better hardware is nowhere slower, worse nowhere faster, and
what a constant is there for takes another time.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpc.driver import compile_text
from hpc.interp import single
from hpc.interp.engine import simulate
from hpc.interp.routing import routing_counts
from hpc.machine.record import RECORDS, Machine, load_machine
from hpc.schedule.model import Schedule

Settings = dict[str, object]

A3 = load_machine("ascend_a3")
TEXT = (RECORDS / "ascend_a3.toml").read_text()

SLOWER = 1e-3
"""What better hardware may cost: who is early for an event has to poll,
and who may draw more from memory leaves others less."""
VISIBLE = 1e-6


def vector(op: str, rows: int, read: int, write: int, **how: object) -> Settings:
    return {"op": op, "rows": rows, "read_cols": read, "write_cols": write, **how}


RUNS: dict[str, tuple[str, Settings]] = {
    "products": ("gmm", {"rows": 2048, "n": 2048, "k": 2048}),
    "weights": ("gmm", {"rows": 256, "n": 2048, "k": 2048, "groups": 32}),
    "fp32": ("gmm", {"rows": 1000, "n": 1000, "k": 1000, "dtype": "fp32"}),
    "gelu": ("vector", vector("gelu", 4096, 2048, 2048)),
    "swiglu": ("vector", vector("swiglu", 2048, 4096, 2048)),
    "stream": ("vector", vector("relu", 8192, 16384, 16384)),
    "small": ("vector", vector("relu", 4096, 256, 256, tile_rows=1)),
    "dynamic": ("vector", vector("swiglu", 2048, 4096, 2048, tile_rows=4)),
    "pair": ("pair", {"rows": 8192, "cols": 2048, "blocks": 64, "interleaved": 1}),
    "thrash": ("pair", {"rows": 32768, "cols": 2048, "blocks": 8, "interleaved": 0}),
    "package": ("dispatch", {"tokens": 32, "ep": 2, "experts": 8}),
    "node": ("dispatch", {"tokens": 512, "ep": 8, "experts": 32}),
    "nodes": ("combine", {"tokens": 512, "ep": 64, "experts": 64}),
    "counted": ("dispatch", {"tokens": 128, "ep": 8, "experts": 16, "counted": 1}),
    "window": ("dispatch", {"tokens": 128, "ep": 8, "experts": 16, "window": 1}),
    "paper": ("layer", {"policy": "paper"}),
    "serial": ("layer", {"policy": "serial"}),
}
HOW: dict[str, dict[str, Any]] = {
    "swiglu": {"repeated": True},
    "dynamic": {"dispatch": "dynamic"},
}
LAYER = """
layer small { tokens = 256  hidden = 1024  intermediate = 512
              experts = 16  top_k = 4  activation = swiglu  dtype = bf16 }
parallel { ep = 4 }
machine = ascend_a3
"""
LINKS = ("package", "node", "nodes", "counted", "window", "paper")
STATIC = tuple(name for name in RUNS if name != "dynamic")
CUBE = ("products", "fp32")
VECTOR = ("gelu", "swiglu", "pair")

# key, factor, whether that is better, runs that must show it
CONSTANTS: tuple[tuple[str, float, bool, tuple[str, ...]], ...] = (
    ("clock_ghz", 2, True, ("products", *VECTOR, "nodes", "serial")),
    ("clock_ghz", 0.5, False, ("products", *VECTOR, "nodes", "serial")),
    ("cube_m0", 2, True, CUBE),
    ("cube_n0", 2, True, CUBE),
    ("cube_k0_16bit", 2, True, ("products",)),
    ("cube_k0_32bit", 2, True, ("fp32",)),
    ("mmad_head_cycles", 2, False, CUBE),
    ("mmad_sync_cycles", 2, False, CUBE),
    ("vector_bytes", 2, True, VECTOR),
    ("vadd", 2, False, ("pair", "nodes")),
    ("vmul", 2, False, ("gelu", "swiglu", "pair")),
    ("vmuls", 2, False, ("gelu", "swiglu", "nodes")),
    ("vdiv", 2, False, ("gelu", "swiglu")),
    ("vexp", 2, False, ("swiglu", "pair")),
    ("vconv", 2, False, ("gelu", "swiglu", "pair", "nodes")),
    ("vmax", 2, False, ("gelu",)),
    ("l1_bytes", 2, True, ()),
    ("ub_bytes", 2, True, ("gelu", "swiglu")),
    ("l2_bytes", 2, True, ("thrash",)),
    ("l1_l0b_bytes_per_cycle", 0.5, False, ()),
    ("fixpipe_bytes_per_cycle", 0.5, False, CUBE),
    ("gm_core_gbps", 0.5, False, ("products", "pair")),
    ("gm_core_gbps", 2, True, ("pair",)),
    ("gm_half_bytes", 2, False, ("products", "swiglu", "pair")),
    ("l2_gbps", 0.5, False, ("products", "fp32")),
    ("l2_gbps", 2, True, ()),
    ("hbm_core_gbps", 0.5, False, ("weights",)),
    ("hbm_core_gbps", 2, True, ()),
    ("hbm_gbps", 2, True, ("stream", "weights")),
    ("hbm_write_gbps", 0.5, False, ("stream", "thrash")),
    ("gm_issue_cycles", 8, False, ("small",)),
    ("scalar_load_us", 2, False, ("counted",)),
    ("unaligned_factor", 2, False, ("fp32",)),
    ("task_fetch_us", 2, False, STATIC),
    ("dynamic_fetch_us", 2, False, ("dynamic",)),
    ("event_set_us", 2, False, ("pair", "paper")),
    ("event_visible_us", 2, False, ("pair", "package", "node", "nodes", "paper")),
    ("event_poll_us", 2, False, ("pair", "package", "node", "nodes")),
    ("sync_all_us", 2, False, ("window", "counted", "serial")),
    ("kernel_launch_us", 2, False, tuple(RUNS)),
    ("core_start_us", 2, False, tuple(RUNS)),
    ("host_launch_us", 2, False, ("serial",)),
    ("package_gbps", 0.5, False, ("node",)),
    ("package_gbps", 2, True, ()),
    ("link_gbps", 2, True, ("node", "nodes")),
    ("link_gbps", 0.5, False, ("node", "nodes")),
    ("across_gbps", 2, True, ("nodes",)),
    ("across_gbps", 0.5, False, ("nodes",)),
    ("message_half_bytes", 2, False, LINKS),
    ("put_core_gbps", 2, True, LINKS),
    ("put_core_gbps", 0.5, False, LINKS),
    ("put_issue_us", 2, False, LINKS),
    ("across_issue_us", 2, False, ("nodes",)),
    ("package_hop_us", 2, False, ("package",)),
    ("hop_us", 2, False, ("node", "nodes", "counted", "window")),
    ("across_hop_us", 2, False, ("nodes",)),
    ("collective_gbps", 2, True, ("serial",)),
    ("collective_gbps", 0.5, False, ("serial",)),
)


@cache
def case(name: str) -> tuple[Schedule, np.ndarray]:
    """A run's schedule, made for the shipped record, and its routing."""
    kind, given = RUNS[name]
    if kind == "layer":
        schedule = compile_text(LAYER.encode(), "small.moe", **given).schedule  # pyright: ignore[reportArgumentType]
    else:
        schedule = _single(kind, {"dtype": "bf16", **given})
    return schedule, routing_counts(schedule.layer, schedule.routing)


def _single(kind: str, given: Settings) -> Schedule:
    if kind in ("gmm", "pair"):
        more = {"groups": 1} if kind == "gmm" else {}
        return getattr(single, f"{kind}_schedule")(A3, **{**more, **given})
    if kind == "vector":
        return single.vector_schedule(A3, **given)  # pyright: ignore[reportArgumentType]
    exchange = {"which": kind, "cols": 4096, "top_k": 8, "rows_per_put": 64}
    return single.exchange_schedule(A3, **given, **exchange)  # pyright: ignore[reportArgumentType]


def time_us(name: str, machine: Machine) -> float:
    return simulate(*case(name), machine, **HOW.get(name, {})).layer_us


@cache
def shipped_us(name: str) -> float:
    return time_us(name, A3)


def users_machine(folder: Path, key: str, factor: float) -> Machine:
    """The shipped record with one figure changed in its text."""

    def changed(found: re.Match[str]) -> str:
        numbers = [float(part) * factor for part in found[2].strip("[]").split(",")]
        texts = [str(int(n) if n == int(n) else n) for n in numbers]
        value = f"[{', '.join(texts)}]" if found[2][0] == "[" else texts[0]
        return f"{found[1]}{value}"

    entry = rf"^({key} = {{ value = )(\[[^]]*\]|[^,]+)"
    text, count = re.subn(entry, changed, TEXT, flags=re.MULTILINE)
    assert count == 1
    path = folder / "mine.toml"
    path.write_text(text)
    return load_machine(str(path))


@pytest.mark.parametrize(
    ("key", "factor", "better", "where"),
    CONSTANTS,
    ids=[f"{key} x {factor}" for key, factor, *_ in CONSTANTS],
)
def test_a_constant_changes_results_in_its_direction(
    key: str, factor: float, better: bool, where: tuple[str, ...], tmp_path: Path
) -> None:
    machine = users_machine(tmp_path, key, factor)
    wrong: dict[str, float] = {}
    for name in RUNS:
        growth = time_us(name, machine) / shipped_us(name) - 1
        gain = -growth if better else growth
        if gain < -SLOWER or (name in where and gain < VISIBLE):
            wrong[name] = growth
    assert wrong == {}
