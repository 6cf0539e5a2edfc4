"""A real Slurm on this host, for tests: ``python -m dev_slurm up``, ``make slurm-up``."""
