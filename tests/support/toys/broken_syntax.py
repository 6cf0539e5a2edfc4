"""A user's module with a slip in it."""

from perfsweep.workloads.api import Workload  # noqa: F401


class Broken(Workoad):  # noqa: F821  # pyright: ignore
    """Misspelt base class."""
