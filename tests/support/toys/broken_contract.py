"""A user's class that forgot half of the contract."""

from perfsweep.workloads.api import Workload


class Broken(Workload):
    """No config, no toggles, no methods."""
