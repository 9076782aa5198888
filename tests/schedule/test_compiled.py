"""What the compiler makes is accepted, strictly and relaxed, and sums alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpc.driver import compile_file
from hpc.interp.routing import routing_counts
from hpc.machine.record import load_machine
from hpc.schedule.certificate import certify
from hpc.schedule.check import CHECKS, Limits, check_schedule
from hpc.schedule.policy import POLICIES

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.moe"))


def accepted(s):
    limits = Limits.of(load_machine(s.machine))
    counts = routing_counts(s.layer, s.routing)
    for relaxed in (False, True):
        report = check_schedule(s, limits, counts, relaxed=relaxed)
        assert report.violations == ()
        assert report.checks == dict.fromkeys([check.name for check in CHECKS], True)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_under_every_policy(path):
    schedules = [compile_file(path, policy=policy).schedule for policy in POLICIES]
    for s in schedules:
        accepted(s)
    assert len({certify(s).digest for s in schedules}) == 1


@pytest.mark.parametrize("mode", ["forward", "backward", "train"])
@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_every_mode_and_number_of_groups(tmp_path, mode, groups):
    text = next(path for path in SAMPLES if path.stem == "tiny").read_text()
    text = re.sub(
        r"ep *= *2", "ep = 4", re.sub(r"mode *= *\w+", f"mode = {mode}", text)
    )
    path = tmp_path / "layer.moe"
    path.write_text(text)
    digests = set()
    for policy in ("paper", "list"):
        pipeline = compile_pipeline(policy, groups)
        s = compile_file(path, policy=policy, pipeline=pipeline).schedule
        assert len(s.groups) == groups
        accepted(s)
        digests.add(certify(s).digest)
    assert len(digests) == 1


def compile_pipeline(policy, groups):
    from passes.pipeline import default_pipeline

    tile = f"moe-tile{{policy={policy}}}"
    return default_pipeline(policy).replace(tile, f"{tile[:-1]} groups={groups}}}")
