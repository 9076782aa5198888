"""Memory of a run in tables and JSON."""

from __future__ import annotations

import doctest

from hpc.report import memory
from hpc.report.memory import buffers_text, memory_json, memory_rows
from hpc.report.text import run_text
from tests.report.reports import MEMORY, policy_report, run_report
from tests.report.test_text import row


def test_sizes_read_in_decimal_units() -> None:
    result = doctest.testmod(memory)
    assert result.attempted
    assert not result.failed


def test_rows_show_allocation_and_peaks_and_leave_out_what_is_never_there() -> None:
    text = run_text(run_report(), color=False)
    assert row(text, "memory of a rank") == ["1.503", "MB", "allocated"]
    assert row(text, "most at one time") == ["1.503", "MB", "simulated"]
    assert row(text, "most written by other ranks") == ["3.000", "kB", "simulated"]
    assert row(text, "most saved for backward") == ["3.000", "kB", "simulated"]
    assert "most workspace" not in text
    both = memory_rows([MEMORY, MEMORY])
    assert both[0] == ["memory of a rank", "1.503 MB", "1.503 MB", "allocated"]


def test_buffers_are_listed_by_their_lives_with_their_formulas() -> None:
    text = buffers_text("list", MEMORY, color=False)
    assert text.splitlines()[0].strip() == (
        "Buffers of rank 1, policy list; lifetimes are simulated"
    )
    assert text.index("\nw ") < text.index("\nrecv ")
    assert row(text, "recv")[:4] == ["workspace,", "symmetric,", "saved", "3,000"]
    assert row(text, "recv")[4:] == ["5.0", "90.0", "30", "rows", "x", "100"]
    assert text in run_text(run_report(policy_report("list")), color=False)


def test_json_has_every_buffer_and_peak() -> None:
    found = memory_json(MEMORY)
    assert list(found) == ["rank", "allocated_bytes", "peaks", "buffers"]
    assert found["peaks"] == {
        "every": {"bytes": 1_503_000, "at_us": 5.0},
        "symmetric": {"bytes": 3000, "at_us": 5.0},
        "saved": {"bytes": 3000, "at_us": 5.0},
        "workspace": {"bytes": 0, "at_us": 0.0},
    }
    assert found["buffers"]["w"] == {  # type: ignore[index]
        "role": "weight",
        "symmetric": False,
        "saved": False,
        "bytes": 1_500_000,
        "formula": "2 experts",
        "from_us": 0.0,
        "to_us": 80.0,
    }
