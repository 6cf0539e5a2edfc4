"""Steps on the other nodes of an allocation see as much of the nodes as the job was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from stand_ins import program

from perfsweep.slurm.local import Allocation


@pytest.mark.parametrize(
    ("hides", "words"), [(True, ["env", "CUDA_VISIBLE_DEVICES=", "work"]), (False, ["work"])]
)
def test_a_step_of_a_job_without_gpus_sees_none(hides: bool, words: list[str]) -> None:
    allocation = Allocation(("n1", "n2"), "localhost", hides_gpus=hides)
    command = allocation.command("n2", ["work"])
    assert command[command.index("--export=ALL") + 1 :] == words


IN_JOB = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"}


@pytest.mark.parametrize(
    ("facts", "address"), [("NodeName=n1 NodeAddr=10.0.0.7 Port=1", "10.0.0.7"), ("NodeName=n1", "n1")]
)
def test_nodes_of_a_job_are_those_that_slurm_lists_and_the_first_has_the_address_it_gives(
    stand_in: Path, facts: str, address: str
) -> None:
    listed = 'case "$*" in *hostnames*) printf "n1\\nn2\\nn3\\n";; *"show node n1"*)'
    program(stand_in, "scontrol", f"{listed} echo {facts};; esac")
    assert Allocation.of(2, IN_JOB) == Allocation(("n1", "n2"), address)
    job = Allocation.of(3, IN_JOB | {"SLURM_CPUS_PER_TASK": "4", "CUDA_VISIBLE_DEVICES": ""})
    assert job == Allocation(("n1", "n2", "n3"), address, "4", hides_gpus=True)
    assert not Allocation.of(1, IN_JOB | {"CUDA_VISIBLE_DEVICES": "0"}).hides_gpus


def test_a_step_runs_on_one_node_beside_the_rest_of_the_job_with_its_cores() -> None:
    (*before, node, cpus, _, program) = Allocation(("n1", "n2"), "n1", cpus="4").command("n2", ["work"])
    assert before == ["srun", "--overlap", "--nodes=1", "--ntasks=1"]
    assert (node, cpus, program) == ("--nodelist=n2", "--cpus-per-task=4", "work")
