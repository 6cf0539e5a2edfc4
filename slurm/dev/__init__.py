"""A real Slurm on this host, for tests: ``python -m perfsweep.slurm.dev up``, ``make slurm-up``."""
