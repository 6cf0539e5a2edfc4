"""Where sweeps run: executors that know jobs, not workloads."""
