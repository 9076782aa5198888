"""Renews the golden file: python -m tests.schedule.golden."""

from hpc.schedule.writer import write_schedule
from tests.schedule.test_round_trip import GOLDEN, golden

if __name__ == "__main__":
    write_schedule(golden(), GOLDEN)
