"""Files that `perfsweep new` and `perfsweep init` write; the workload is a real one, and tested as it
stands."""
