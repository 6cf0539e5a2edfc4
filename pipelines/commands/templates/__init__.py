"""Files that `perfsweep new` and `perfsweep init` write; the workload is real, and tested unchanged."""
