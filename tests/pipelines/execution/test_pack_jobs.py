"""Jobs of packs: what they ask for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from recorded import build
from toys.spinner import Spinner

from perfsweep.pipelines.commands.list import describe
from perfsweep.pipelines.config.types import ArmResources, ClusterConfig, DesignConfig, SweepCommand
from perfsweep.pipelines.execution import executor_choice, launch, pack_jobs, submitted
from perfsweep.pipelines.execution.allotment import Allotment
from perfsweep.pipelines.execution.executor_choice import Choice
from perfsweep.pipelines.execution.pack_jobs import resources_of, unused
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.plan import make_plan, single_arm
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.slurm import executors
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import Executor, ExecutorContext, Job, JobState, Refusal
from perfsweep.slurm.site import SiteProfile
from perfsweep.workloads.api import Device
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


LARGE = ArmResources(levels={"amp": "bf16"}, memory="100G")


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    """Three packs of two arms, of which one has mixed precision."""
    design = DesignConfig(kind="one_at_a_time", toggles=["amp", "tf32", "zero_grad"])
    command = SweepCommand(workload={"name": "digits"}, cluster=ClusterConfig(arms_per_pack=2))
    command.sweep.name, command.sweep.designs = "demo", [design]
    return plan.make_plan(command, Device())


def asked(manifest: Manifest, *rules: ArmResources) -> list[dict[str, object]]:
    return [resources_of(manifest, pack, ClusterConfig(arm_resources=[*rules])) for pack in manifest.packs]


def test_a_rule_is_about_the_packs_that_hold_such_an_arm(manifest: Manifest) -> None:
    found = asked(manifest, LARGE)
    holds = [any(manifest.arm(arm).levels["amp"] == "bf16" for arm in pack.arms) for pack in manifest.packs]
    assert 0 < sum(holds) < len(holds)
    assert found == [{"memory": "100G"} if one else {} for one in holds]


def test_of_several_rules_the_last_that_fits_says_each_field(manifest: Manifest) -> None:
    found = asked(manifest, ArmResources(memory="8G", time_min=9), LARGE)
    assert {"memory": "100G", "time_min": 9} in found and {"memory": "8G", "time_min": 9} in found


def test_levels_that_yaml_reads_as_booleans_are_meant_as_written(manifest: Manifest) -> None:
    assert not unused(ClusterConfig(arm_resources=[ArmResources(levels={"amp": False})]), manifest)
    (said,) = unused(ClusterConfig(arm_resources=[ArmResources(levels={"amp": "bf61"})]), manifest)
    assert said == "cluster.arm_resources: no arm of this sweep has amp=bf61, so that rule changes nothing"


def test_a_rule_that_cannot_be_submitted_is_refused_by_its_place() -> None:
    with pytest.raises(ClusterError, match=r"cluster.arm_resources\[1\]: cluster.memory is set and .*none"):
        ClusterConfig(mem_flag="none", arm_resources=[ArmResources(time_min=5), LARGE]).check()
    with pytest.raises(ClusterError, match=r"cluster.arm_resources\[0\]: cluster.time_min=0 must be"):
        ClusterConfig(arm_resources=[ArmResources(time_min=0)]).check()


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
    assert sorted("--mem=100G" in script for script in scripts) == [False, True]


class Elsewhere(Executor):
    """A place that keeps a list of what it was handed, in the sweep's folder."""

    remote = True
    closed: ClassVar[str | None] = None
    jobs: ClassVar[list[Job]] = []

    def __init__(self, file: Path) -> None:
        self.file, self.names = file, list[str]()

    @classmethod
    def of(cls, context: ExecutorContext) -> Elsewhere:
        return cls(context.folder / "elsewhere.txt")

    @classmethod
    def refusal(cls, site: SiteProfile, environ: Mapping[str, str]) -> Refusal | None:
        return Refusal(cls.closed) if cls.closed else None

    @classmethod
    def submitted(cls, folder: Path) -> Mapping[str, bool]:
        file = folder / "elsewhere.txt"
        return dict.fromkeys(file.read_text().split(), False) if file.exists() else {}

    def submit(self, jobs: Sequence[Job]) -> None:
        self.jobs[:] = jobs
        self.file.write_text(" ".join(job.name for job in jobs))
        self.follow([job.name for job in jobs])

    def follow(self, names: Iterable[str]) -> None:
        self.names = list(names)

    def poll(self) -> dict[str, JobState]:
        return dict.fromkeys(self.names, JobState.ENDED)

    def cancel(self, names: Iterable[str] | None = None) -> int:
        return len(self.names)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> ClusterConfig:
    """The entry of another executor, before the ones there are."""
    monkeypatch.setitem(vars(executors), "Elsewhere", Elsewhere)
    entries = {"elsewhere": "perfsweep.slurm.executors:Elsewhere", **executors.EXECUTORS}
    monkeypatch.setattr(executors, "EXECUTORS", entries)
    return ClusterConfig(executor="elsewhere")


def test_a_sweep_runs_where_the_entry_says_and_is_found_again(
    elsewhere: ClusterConfig, tmp_path: Path
) -> None:
    demo = build(tmp_path / "demo")
    arms = tuple(replace(arm, levels={}) for arm in demo.manifest.arms)
    sweep = demo.manifest.sweep.model_copy(update={"config": {}})
    folder, manifest = demo.folder, demo.manifest.model_copy(update={"arms": arms, "sweep": sweep})
    assert submitted.executor_of(folder) is None
    assert launch.launch(folder, manifest, list(manifest.packs), elsewhere, Device()).complete
    assert submitted.executor_of(folder) == "elsewhere"
    assert launch.resume(folder, manifest, elsewhere).cancel() == len(manifest.packs)


def test_auto_takes_the_first_executor_that_does_not_refuse(
    elsewhere: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ClusterConfig(executor="auto", slurm_conf="/nowhere/slurm.conf")
    assert executor_choice.choose(cluster, {}) == Choice("elsewhere")
    assert executor_choice.choose(cluster, {}).remote
    monkeypatch.setattr(Elsewhere, "closed", "closed today")
    assert not executor_choice.choose(cluster, {}).remote
    with pytest.raises(ClusterError, match="executor=elsewhere: closed today, so nothing was started"):
        executor_choice.choose(elsewhere, {})


FOUR_GPUS = Device("cuda", 4, "NVIDIA H100", capability=(9, 0))


def arm_of(level: str, device: Device, cluster: ClusterConfig | None = None) -> Manifest:
    workload, toggles = {"name": "toys.devices:Devices"}, {"parallel": level}
    return single_arm(SweepCommand(workload, toggles, cluster=cluster or ClusterConfig()), device)


@pytest.mark.parametrize(
    ("level", "ranks", "gpus"), [("single", 1, 1), ("split", 1, 2), ("pair", 2, 2), ("replicas", 4, 2)]
)
def test_a_pack_is_given_the_gpus_that_its_ranks_and_its_levels_use(
    elsewhere: ClusterConfig, tmp_path: Path, level: str, ranks: int, gpus: int
) -> None:
    """One rank for each GPU that it was planned for, and not for the fewest that would do."""
    manifest = arm_of(level, FOUR_GPUS)
    launch.launch(SweepFolder(tmp_path), manifest, list(manifest.packs), elsewhere, FOUR_GPUS)
    (job,) = Elsewhere.jobs
    assert (job.ranks, job.gpus) == (ranks, gpus)


def test_ranks_for_the_gpus_of_all_nodes_must_find_room_at_plan_time(command) -> None:
    sweep = command(DesignConfig("one_at_a_time"), workload="toys.devices:Devices")
    sweep.cluster = ClusterConfig(gpus=4, nodes=2, ntasks_per_node=2)
    with pytest.raises(ConfigError, match="room for 4 ranks on 2 nodes, and an arm has 8"):
        make_plan(sweep, FOUR_GPUS)


def test_describe_says_what_a_level_may_do_where_jobs_run(
    elsewhere: ClusterConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    describe("toys.devices:Devices")
    here = "needs two GPUs"
    assert here in capsys.readouterr().out  # jobs get one, too, unless more are asked for
    describe("digits")
    assert "where jobs run it may act" in capsys.readouterr().out
