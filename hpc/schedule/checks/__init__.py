"""The checks of a schedule, one kind a file; `hpc.schedule.check` runs them."""
