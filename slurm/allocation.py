"""The nodes of the allocation that this process runs in, and how processes are started on the others."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfsweep.slurm.client import SlurmClient
from perfsweep.slurm.errors import ClusterError

NO_GPU = ("env", "CUDA_VISIBLE_DEVICES=")
"""What a step of a job without GPUs begins with: without device cgroups it would see all of them, and srun
takes the variable from a step's environment if the job was given none."""


@dataclass(frozen=True)
class Allocation:
    """Nodes of one job, of which the first runs this process.

    Attributes
    ----------
    nodes : names, as Slurm gives them
    address : where processes on the other nodes find the first one
    cpus : cores of a task, None where the job does not say
    hides_gpus : whether those of the nodes are not to be seen
    """

    nodes: tuple[str, ...]
    address: str
    cpus: str | None = None
    hides_gpus: bool = False

    @classmethod
    def of(cls, nodes: int, environ: Mapping[str, str] = os.environ) -> Allocation:
        """Read the first `nodes` of the allocation from Slurm's variables.

        Raises
        ------
        ClusterError
            This is no allocation of so many nodes, or Slurm does not answer.
        """
        refuse_missing_nodes(nodes, environ)
        client = SlurmClient()
        names = client.hostnames(environ["SLURM_JOB_NODELIST"])[:nodes]
        facts = client.run("scontrol", "--oneliner", "show", "node", names[0])
        # A name of Slurm's own may be none that the network knows.
        found = re.search(r"\bNodeAddr=(\S+)", facts)
        return cls(
            tuple(names),
            found[1] if found else names[0],
            environ.get("SLURM_CPUS_PER_TASK"),
            environ.get("CUDA_VISIBLE_DEVICES") == "",
        )

    def command(self, node: str, program: Sequence[str]) -> list[str]:
        """Put the command line that runs a program next to what else this job does on a node."""
        # Since Slurm 20.11 a step has its resources to itself unless it says that it overlaps.
        cpus = [f"--cpus-per-task={self.cpus}"] if self.cpus else []
        one = ["--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", *cpus]
        return ["srun", *one, "--export=ALL", *(NO_GPU if self.hides_gpus else ()), *program]


def refuse_missing_nodes(nodes: int, environ: Mapping[str, str]) -> None:
    """Refuse `nodes` where this process has fewer.

    Raises
    ------
    ClusterError
        It has: the message names the field.
    """
    have = int(environ.get("SLURM_JOB_NUM_NODES", "1")) if "SLURM_JOB_NODELIST" in environ else 1
    if nodes > have:
        place = f"this allocation has {have}" if "SLURM_JOB_NODELIST" in environ else "this is one machine"
        raise ClusterError(
            f"cluster.nodes={nodes}, and {place}; choose cluster=slurm, or allocate more with --nodes"
        )


def free_port() -> int:
    """A port of this node that no process listens at now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
