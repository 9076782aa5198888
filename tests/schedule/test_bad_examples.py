"""One file for each class of mutation, refused with the message that its notes expect.

The files are edits of the two safe schedules of `hpc/schedule/explain`; open one next
to them to see what was changed.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hpc.schedule.check import Limits, check_schedule
from hpc.schedule.explain.edits import base
from hpc.schedule.reader import read_schedule

FOLDER = Path(__file__).parent / "bad"
FILES = sorted(FOLDER.glob("*.ssc.json"))
LIMITS = Limits(64, 24, 48, ("bf16", "fp16"))
COUNTS = np.array([[2, 2], [2, 2]])
NOTE = re.compile(r"expect \[([a-z0-9-]+)\] (.*)")


def test_there_is_a_file_for_every_class():
    assert len(FILES) >= 30


@pytest.mark.parametrize("name", ["flags", "barriers"])
@pytest.mark.parametrize("relaxed", [False, True])
def test_the_schedules_that_the_files_were_made_from_are_safe(name, relaxed):
    report = check_schedule(base(name), LIMITS, COUNTS, relaxed=relaxed)
    assert report.violations == ()
    assert not report.unchecked


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_a_file_is_refused_as_its_notes_say(path):
    s = read_schedule(path)
    (note,) = s.notes
    code, message = NOTE.fullmatch(note).groups()
    safe = base("flags")
    one_rank = path.name.startswith("one_rank")
    programs = [safe, s] if one_rank else None
    report = check_schedule(safe if one_rank else s, LIMITS, COUNTS, programs)
    assert (code, message) in {(v.code, v.message) for v in report.violations}
    assert not report.ok


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_a_file_differs_from_a_safe_one(path):
    s = read_schedule(path)
    assert (s.queues, s.buffers, s.events) not in [
        (safe.queues, safe.buffers, safe.events)
        for safe in (base("flags"), base("barriers"))
    ]
