"""Which node of a job failed: a job of several is tried again without that one alone."""

from __future__ import annotations

from dataclasses import dataclass

from perfsweep.slurm.client import Sighting, SlurmClient
from perfsweep.slurm.errors import ClusterError


@dataclass(frozen=True)
class FailedNodes:
    """Nodes that a job is tried again without; not `known`: any of them may be the one that failed."""

    names: tuple[str, ...] = ()
    known: bool = True

    @classmethod
    def of(cls, client: SlurmClient, seen: Sighting) -> FailedNodes:
        """Find out which nodes of an element failed under it; all where Slurm does not say."""
        if not seen.node:
            return cls()
        if not any(sign in seen.node for sign in "[,"):
            return cls((seen.node,))
        try:
            failed = client.out_of_service(seen.job_id, seen.node)
            every = client.hostnames(seen.node)
        except ClusterError:
            return cls((seen.node,), known=False)
        return cls(tuple(failed or every), known=bool(failed))

    @property
    def words(self) -> str:
        """What a person should know about it, behind a sentence; empty where no node failed."""
        if not self.names:
            return ""
        why = "" if self.known else ": Slurm does not say which of its nodes failed"
        return f", without {' and '.join(self.names)}{why}"
