"""A workload of known cost, by which a machine is tested: see `perfsweep selftest`."""
