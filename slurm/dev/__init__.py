"""A real Slurm on this host for development and tests: ``python -m slurm.dev up``, ``make slurm-up``."""
