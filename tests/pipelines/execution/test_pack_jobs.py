"""Jobs of packs: what they ask for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.config.types import ArmResources, ClusterConfig, DesignConfig, SweepCommand
from perfsweep.pipelines.execution import launch, pack_jobs
from perfsweep.pipelines.execution.allotment import Allotment
from perfsweep.pipelines.execution.pack_jobs import unused
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.plan import make_plan, single_arm
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.slurm.jobs import Job
from perfsweep.workloads.api import Declaration, Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.user_environment import user_environment


@pytest.fixture
def many(command) -> tuple[Manifest, Path]:
    """A plan of three packs, of which the last arm asks for more memory."""
    sweep = command(DesignConfig("ladder", levels={"slab": [2, 3, 4]}))
    sweep.cluster = ClusterConfig(arms_per_pack=2)
    return make_plan(sweep, Device()), Path(sweep.runs) / "toy"


def jobs(many: tuple[Manifest, Path], retry: tuple[str, ...] = (), **fields: Any) -> list[Job]:
    manifest, path = many
    cluster = ClusterConfig(**{"executor": "slurm", "gpus": 0, "cpus_per_task": 3, **fields})
    packs = list(manifest.packs)
    return pack_jobs.jobs_of(SweepFolder(path), manifest, packs, cluster, Device(), retry, Path("code"))


def test_packs_that_share_a_job_are_given_what_the_largest_needs_each(many: tuple[Manifest, Path]) -> None:
    first, last = jobs(many, packs_per_job=2)
    assert (first.name, last.name) == ("p000+p001", "p002")
    assert first.command[2:4] == ("perfsweep.pipelines.own_code", "perfsweep.pipelines.execution.shared_job")
    assert first.resources == {"gpus": 0, "cpus_per_task": 6}
    assert last.resources == {}


def test_a_job_hears_what_was_asked_for_it_and_nothing_on_this_machine(
    many: tuple[Manifest, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"gpus": 1, "gpu_type": "h100", "memory": "2G"}
    (shared, last) = jobs(many, packs_per_job=2, **own)
    assert Allotment.here(shared.env) == Allotment(1, "h100", 3, 2 * 2**30), "each pack of a job by itself"
    assert Allotment.here(last.env) == Allotment.here(shared.env)
    assert {Allotment.here(job.env) for job in jobs(many, executor="local", **own)} == {None}
    monkeypatch.setattr(Declaration, "own_device", True)
    theirs = Allotment(1, "h100", 3, 2 * 2**30, by_torch=False)
    assert {Allotment.here(job.env) for job in jobs(many, **own)} == {theirs}


def test_jobs_import_the_copy_of_the_code_and_have_its_number_of_threads(
    many: tuple[Manifest, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    manifest, path = many
    monkeypatch.setenv("PYTHONPATH", "/user")
    sweep = manifest.sweep.model_copy(update={"import_paths": ("/workload",)})
    env = pack_jobs.environment(
        SweepFolder(path), manifest.model_copy(update={"sweep": sweep}), tmp_path / "code"
    )
    paths = env["PYTHONPATH"].split(os.pathsep)
    assert paths == [str(tmp_path / "code"), "/workload", "/user"], "the copy, the workload, then the user's"
    assert (env["PYTHONSAFEPATH"], env["OMP_NUM_THREADS"]) == ("1", str(manifest.sweep.measure.threads))
    assert user_environment({**os.environ, **env})["PYTHONPATH"] == "/user"
    monkeypatch.delenv("PYTHONPATH")
    assert "" not in pack_jobs.environment(SweepFolder(path), manifest, tmp_path)["PYTHONPATH"].split(":")


LARGE = ArmResources(levels={"amp": "bf16"}, memory="100G")


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    """Three packs of two arms, of which one has mixed precision."""
    design = DesignConfig(kind="one_at_a_time", toggles=["amp", "tf32", "zero_grad"])
    command = SweepCommand(workload={"name": "digits"}, cluster=ClusterConfig(arms_per_pack=2))
    command.sweep.name, command.sweep.designs = "demo", [design]
    return plan.make_plan(command, Device())


def test_levels_that_yaml_reads_as_booleans_are_meant_as_written(manifest: Manifest) -> None:
    assert not unused(ClusterConfig(arm_resources=[ArmResources(levels={"amp": False})]), manifest)
    (said,) = unused(ClusterConfig(arm_resources=[ArmResources(levels={"amp": "bf61"})]), manifest)
    assert said == "cluster.arm_resources: no arm of this sweep has amp=bf61, so that rule changes nothing"


def test_a_shared_job_asks_for_the_gpus_and_cores_of_all_its_packs(
    manifest: Manifest, tmp_path: Path
) -> None:
    cluster = ClusterConfig(executor="slurm", gpus=2, cpus_per_task=3, packs_per_job=3, exclusive=True)
    packs = list(manifest.packs)[:3]
    (script,) = launch.batch_texts(SweepFolder(tmp_path), manifest, packs, cluster, Device(), ())
    for line in ("--gres=gpu:6", "--cpus-per-task=9", "--array=0-0%1", "--exclusive"):
        assert f"#SBATCH {line}" in script
    cluster.arm_resources = [LARGE]
    scripts = launch.batch_texts(SweepFolder(tmp_path), manifest, packs, cluster, Device(), ())
    gpus_and_memory = sorted(("--gres=gpu:2" in script, "--mem=100G" in script) for script in scripts)
    assert gpus_and_memory == [(False, False), (True, True)], "one pack by itself has the memory"


FOUR_GPUS = Device("cuda", 4, "NVIDIA H100", capability=(9, 0))


def arm_of(level: str, device: Device, cluster: ClusterConfig | None = None) -> Manifest:
    workload, toggles = {"name": "toys.devices:Devices"}, {"parallel": level}
    return single_arm(SweepCommand(workload, toggles, cluster=cluster or ClusterConfig()), device)


@pytest.mark.parametrize(
    ("level", "ranks", "gpus"), [("single", 1, 1), ("split", 1, 2), ("pair", 2, 2), ("replicas", 4, 2)]
)
def test_a_pack_is_given_the_gpus_that_its_ranks_and_its_levels_use(
    tmp_path: Path, level: str, ranks: int, gpus: int
) -> None:
    """One rank for each GPU that it was planned for, and not for the fewest that would do."""
    manifest, cluster = arm_of(level, FOUR_GPUS), ClusterConfig(executor="slurm")
    asked = list(manifest.packs), cluster, FOUR_GPUS, (), Path("code")
    (job,) = pack_jobs.jobs_of(SweepFolder(tmp_path), manifest, *asked)
    assert (job.ranks, job.gpus) == (ranks, gpus)
    cluster.arm_resources = [ArmResources(levels={"parallel": "replicas"}, gpus=3)]
    (job,) = pack_jobs.jobs_of(SweepFolder(tmp_path), manifest, *asked)
    assert job.ranks == (3 if level == "replicas" else ranks), "one for each of those that it asks for itself"


def test_ranks_for_the_gpus_of_all_nodes_must_find_room_at_plan_time(command) -> None:
    sweep = command(DesignConfig("one_at_a_time"), workload="toys.devices:Devices")
    sweep.cluster = ClusterConfig(gpus=4, nodes=2, ntasks_per_node=2)
    with pytest.raises(ConfigError, match="room for 4 ranks on 2 nodes, and an arm has 8"):
        make_plan(sweep, FOUR_GPUS)
