"""Any training script as a workload, unchanged: run under control, measured between its own iterations."""
