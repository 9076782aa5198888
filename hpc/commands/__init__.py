"""The subcommands of `hpc`, one module each; `hpc.cli` picks the module to import."""
