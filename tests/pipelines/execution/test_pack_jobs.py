"""Jobs of packs: what they ask for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from toys.spinner import Spinner

from perfsweep.pipelines.config.types import ArmResources, ClusterConfig, DesignConfig
from perfsweep.pipelines.execution import pack_jobs
from perfsweep.pipelines.execution.allotment import Allotment
from perfsweep.pipelines.plan.plan import make_plan
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import Job
from perfsweep.workloads.api import Device
from perfsweep.workloads.user_environment import user_environment


def test_the_shapes_of_many_packs_take_one_look_for_their_workload(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding a class among what is installed costs 30 ms: for a thousand packs that was half a minute."""
    sweep = command(DesignConfig("ladder", levels={"slab": list(range(2, 60))}))
    sweep.cluster = ClusterConfig(arms_per_pack=2)
    manifest = make_plan(sweep, Device())
    assert len(manifest.packs) == 58
    looks = []
    real = pack_jobs.load_workload
    monkeypatch.setattr(pack_jobs, "load_workload", lambda *asked: looks.append(asked) or real(*asked))
    pack_jobs._workload.cache_clear()
    assert len(pack_jobs.shapes(manifest, ClusterConfig(), Device())) == 58
    assert len(looks) == 1


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


def test_each_pack_has_a_job_with_its_command_and_log(many: tuple[Manifest, Path]) -> None:
    manifest, path = many
    made = jobs(many, ("oom",))
    assert [job.name for job in made] == [pack.id for pack in manifest.packs]
    first = made[0]
    assert first.command == (
        *(
            sys.executable,
            "-m",
            "perfsweep.pipelines.own_code",
            "perfsweep.pipelines.execution.pack",
            str(path.absolute()),
        ),
        *("p000", "oom"),
    )
    assert first.log == SweepFolder(path).pack_dir("p000") / "log.txt"
    assert (first.ranks, first.resources, first.gpus) == (1, {}, 0)


def test_packs_that_share_a_job_are_given_what_the_largest_needs_each(many: tuple[Manifest, Path]) -> None:
    first, last = jobs(many, packs_per_job=2)
    assert (first.name, last.name) == ("p000+p001", "p002")
    assert first.command[2:4] == ("perfsweep.pipelines.own_code", "perfsweep.pipelines.execution.shared_job")
    assert first.resources == {"gpus": 0, "cpus_per_task": 6}
    assert last.resources == {}


def test_on_this_machine_packs_share_no_job(many: tuple[Manifest, Path]) -> None:
    assert len(jobs(many, executor="local", packs_per_job=2)) == 3


def test_a_job_hears_what_was_asked_for_it_and_nothing_on_this_machine(many: tuple[Manifest, Path]) -> None:
    own = {"gpus": 1, "gpu_type": "h100", "memory": "2G"}
    (shared, last) = jobs(many, packs_per_job=2, **own)
    assert Allotment.here(shared.env) == Allotment(1, "h100", 3, 2 * 2**30), "each pack of a job by itself"
    assert Allotment.here(last.env) == Allotment.here(shared.env)
    assert {Allotment.here(job.env) for job in jobs(many, executor="local", **own)} == {None}


def test_packs_are_not_measured_on_the_cpu_of_a_job_with_gpus_that_torch_does_not_see(
    many: tuple[Manifest, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ClusterError, match=r"^this job has 1 GPU, torch \S+ sees 0: "):
        jobs(many, executor="local")
    assert len(jobs(many)) == 3, "what is submitted has GPUs of its own"
    monkeypatch.setattr(Spinner, "own_device", True)
    assert len(jobs(many, executor="local")) == 3, "its programs may see them"


def test_an_arm_that_asks_for_more_has_it_in_its_packs_job_alone(many: tuple[Manifest, Path]) -> None:
    rule = ArmResources(levels={"slab": 4}, memory="9G")
    asked = {job.name: dict(job.resources) for job in jobs(many, arm_resources=[rule])}
    assert [name for name, resources in asked.items() if resources == {"memory": "9G"}] == ["p002"]
    shared = [job.name for job in jobs(many, arm_resources=[rule], packs_per_job=3)]
    assert shared == ["p000+p001", "p002"], "packs share a job where they ask for the same"


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


def test_the_last_job_compares(many: tuple[Manifest, Path]) -> None:
    path = many[1].absolute()
    job = pack_jobs.collect_job(SweepFolder(many[1]), {"A": "1"})
    assert job.command == (sys.executable, "-m", "perfsweep.pipelines.cli", "compare", str(path))
    assert (job.name, job.env, job.log) == ("collect", {"A": "1"}, path / "packs/collect/log.txt")
    assert (job.ranks, job.gpus) == (1, 0)


def test_packs_of_several_ranks_that_share_a_job_have_gpus_for_all_of_them(command) -> None:
    four = Device("cuda", 4, "NVIDIA H100", capability=(9, 0))
    levels = {"parallel": ["pair", "split"]}
    sweep = command(DesignConfig("one_at_a_time", levels=levels), workload="toys.devices:Devices")
    sweep.cluster = ClusterConfig(executor="slurm", gpus=1, cpus_per_task=3, arms_per_pack=2, packs_per_job=2)
    manifest = make_plan(sweep, four)
    asked = Path(sweep.runs) / "toy", manifest, list(manifest.packs), sweep.cluster, four, ()
    (job,) = pack_jobs.jobs_of(SweepFolder(asked[0]), *asked[1:], Path("code"))
    assert job.name == "p000+p001"
    assert job.resources == {"gpus": 4, "cpus_per_task": 12}
    shape = pack_jobs.shapes(manifest, sweep.cluster, four)["p000"]
    assert (shape.gpus, shape.cpus) == (2, 6)
