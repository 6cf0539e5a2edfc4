"""Where a sweep runs: never a job inside a job, and never a wait for a controller that does not answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import ClusterConfig
from perfsweep.pipelines.execution.executor_choice import Choice, choose, crowded, planning_device
from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads.api import Device
from perfsweep.workloads.toggles import needs_tensor_cores

SILENT = "/nowhere/slurm.conf"


@pytest.mark.parametrize("executor", ["slurm", "auto"])
def test_inside_an_allocation_nothing_is_submitted(executor: str) -> None:
    choice = choose(ClusterConfig(executor=executor, slurm_conf=SILENT), {"SLURM_JOB_ID": "12"})
    sentence = "inside Slurm job 12: measuring in this allocation; cluster.submit_inside=true submits jobs"
    assert choice == Choice("local", sentence)


@pytest.mark.parametrize("executor", ["slurm", "auto"])
def test_from_inside_an_allocation_jobs_are_submitted_where_that_is_asked_for(
    executor: str, answering_slurm: None
) -> None:
    cluster = ClusterConfig(executor=executor, submit_inside=True)
    assert choose(cluster, {"SLURM_JOB_ID": "12"}) == Choice("slurm")


@pytest.fixture
def answering_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are installed, and the controller answers."""
    for name in ("sbatch", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Slurmctld(primary) is UP'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)


@pytest.fixture
def silent_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are installed, and the controller does not answer."""
    for name in ("sbatch", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("silent_slurm")
def test_a_silent_slurm_means_this_machine_only_where_any_place_was_asked_for() -> None:
    choice = choose(ClusterConfig(executor="auto", slurm_conf=SILENT), {})
    assert choice == Choice("local", "Slurm's controller does not answer: measuring on this machine")
    with pytest.raises(ClusterError) as refused:
        choose(ClusterConfig(executor="slurm", slurm_conf=SILENT), {})
    assert str(refused.value) == (
        "cluster.executor=slurm: Slurm's controller does not answer, so nothing was started; start the same"
        " command again later, or choose cluster=local to measure on this machine"
    )


def test_where_slurm_is_not_installed_a_sweep_for_it_is_refused_and_a_dry_run_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert choose(ClusterConfig(executor="auto"), {}) == Choice("local")
    with pytest.raises(ClusterError, match="Slurm is not installed here, so nothing was started; choose"):
        choose(ClusterConfig(executor="slurm"), {})
    assert choose(ClusterConfig(executor="slurm"), {}, dry_run=True).executor == "slurm"


def test_a_gpu_of_the_login_node_says_nothing_about_those_of_the_queue() -> None:
    small = Device("cuda", 1, "Tesla T4", 16 * 2**30, (7, 5))
    found = planning_device(ClusterConfig(gpu_type="h100"), Choice("slurm"), small)
    assert (found.name, found.capability, found.memory_bytes) == ("h100", None, 0)
    assert needs_tensor_cores(small) and needs_tensor_cores(found) is None
    two = planning_device(ClusterConfig(gpus=2), Choice("slurm"), Device())
    assert (two.type, two.count) == ("cuda", 2), "and that it has none says nothing either"
    assert planning_device(ClusterConfig(gpus=2), Choice("local"), Device()) == Device()
    assert planning_device(ClusterConfig(gpus=0), Choice("slurm"), Device()) == Device()


def test_a_pack_without_a_core_of_its_own_is_said_and_the_remedy_named() -> None:
    said = [crowded(ClusterConfig(cpus_per_task=2), threads) for threads in (1, 2, 3)]
    lacks = (
        "cluster.cpus_per_task=2: measure.threads={} leaves no core for the pack's own process. Ask for {}."
    )
    assert said == [None, lacks.format(2, 3), lacks.format(3, 4)]
