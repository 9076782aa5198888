"""Reports made by hand."""

from __future__ import annotations

from dataclasses import replace

from hpc.interp.lifetimes import BufferUse, MemoryUse, Peak
from hpc.report.summary import CoreUse, Fetch, PolicyReport, RunReport, Values
from tests.builders import small_layer, standard_schedule

VALUES = Values("shrunk", (0, 1), 1.5e-3, 4e-3, True, True, "abc")
MEMORY = MemoryUse(
    rank=1,
    buffers=(
        BufferUse("recv", "workspace", True, True, 3000, "30 rows x 100", 5.0, 90.0),
        BufferUse("w", "weight", False, False, 1_500_000, "2 experts", 0.0, 80.0),
    ),
    allocated_bytes=1_503_000,
    every=Peak(1_503_000, 5.0),
    symmetric=Peak(3000, 5.0),
    saved=Peak(3000, 5.0),
    workspace=Peak(0, 0.0),
)


def policy_report(policy: str = "list", latency_us: float = 200.0) -> PolicyReport:
    """A good report with numbers that are easy to find again."""
    return PolicyReport(
        policy=policy,
        schedule=standard_schedule(small_layer()),
        latency_us=latency_us,
        layer_us=latency_us + 11.25,
        bound_us=100.0,
        bound_by="aic",
        bound_rank=1,
        layer_bound_us=101.0,
        comm_hidden=0.75,
        utilization={"aic": 0.45, "aiv": 0.05},
        cores={
            "aic": CoreUse(0.5, {"arrived": 0.25, "act_done": 0.125}, 0.125),
            "aiv": CoreUse(0.1, {"up_done": 0.9}, 0.0),
        },
        tasks=1234,
        ranks_simulated=8,
        checks={"structure": True, "deadlock": True},
        unchecked={"bytes": "not checked: no routing table was given"},
        values=VALUES,
        memory=MEMORY,
    )


def run_report(*policies: PolicyReport) -> RunReport:
    figures = {"measured": 30, "assumed": 2}
    every, fetch = policies or (policy_report(),), Fetch("static", 0.1)
    return RunReport("small.moe", every, figures, (), fetch)


def failing(report: PolicyReport) -> PolicyReport:
    return replace(report, checks={**report.checks, "deadlock": False})
