"""Where a sweep runs: never a job inside a job, and never a wait for a controller that does not answer."""

from __future__ import annotations

import pytest

from pipelines.config.types import ClusterConfig
from pipelines.execution.executor_choice import Choice, choose, crowded, planning_device
from workloads.api import Device

SILENT = "/nowhere/slurm.conf"


@pytest.mark.parametrize("executor", ["slurm", "auto"])
def test_inside_an_allocation_nothing_is_submitted(executor: str) -> None:
    choice = choose(ClusterConfig(executor=executor, slurm_conf=SILENT), {"SLURM_JOB_ID": "12"})
    assert choice == Choice("local", "inside Slurm job 12: measuring in this allocation")


def test_a_silent_or_missing_slurm_means_this_machine_with_a_line() -> None:
    choice = choose(ClusterConfig(executor="slurm", slurm_conf=SILENT), {})
    assert choice.executor == "local"
    assert choice.line and choice.line.endswith("measuring on this machine")


@pytest.mark.parametrize("executor", ["local", "inprocess"])
def test_who_asks_for_this_machine_gets_it(executor: str) -> None:
    assert choose(ClusterConfig(executor=executor), {"SLURM_JOB_ID": "12"}) == Choice(executor)


def test_a_login_node_without_a_gpu_plans_for_the_nodes_that_have_some() -> None:
    cluster = ClusterConfig(gpus=2, gpu_type="a100")
    assert planning_device(cluster, Choice("slurm"), Device()).count == 2
    assert planning_device(cluster, Choice("slurm"), Device()).type == "cuda"
    assert planning_device(cluster, Choice("local"), Device()) == Device()
    assert planning_device(ClusterConfig(gpus=0), Choice("slurm"), Device()) == Device()


def test_a_pack_without_a_core_of_its_own_is_said_and_the_remedy_named() -> None:
    assert crowded(ClusterConfig(cpus_per_task=2), threads=1) is None
    line = crowded(ClusterConfig(cpus_per_task=2), threads=2)
    assert line is not None
    assert "cluster.cpus_per_task=2" in line
    assert "ask for 3" in line
