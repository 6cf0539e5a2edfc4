"""Executors by name: a new one is one class and one entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from recorded import build

from perfsweep.pipelines.commands.list import describe
from perfsweep.pipelines.config.types import ArmResources, ClusterConfig, DesignConfig, SweepCommand
from perfsweep.pipelines.execution import executor_choice, launch, pack_jobs, submitted
from perfsweep.pipelines.execution.executor_choice import Choice
from perfsweep.pipelines.plan.plan import make_plan, single_arm
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.slurm import executors
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import Executor, ExecutorContext, Job, JobState, Refusal
from perfsweep.slurm.site import SiteProfile
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError


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


@pytest.mark.parametrize(("level", "gpus"), [("single", 1), ("split", 2)])
def test_of_two_gpus_an_arm_that_uses_one_leaves_the_other_to_another_pack(
    elsewhere: ClusterConfig, tmp_path: Path, level: str, gpus: int
) -> None:
    two = replace(FOUR_GPUS, count=2)
    manifest = arm_of(level, two)
    launch.launch(SweepFolder(tmp_path), manifest, list(manifest.packs), elsewhere, two)
    assert [job.gpus for job in Elsewhere.jobs] == [gpus]


@pytest.mark.parametrize(("nodes", "shape"), [(1, (4, 12)), (2, (4, 12))])
def test_a_job_has_cores_for_a_rank_on_each_of_its_gpus(nodes: int, shape: tuple[int, int]) -> None:
    cluster = ClusterConfig(gpus=4, cpus_per_task=3, nodes=nodes)
    manifest = arm_of("replicas", FOUR_GPUS, cluster)
    (found,) = pack_jobs.shapes(manifest, cluster, FOUR_GPUS).values()
    assert (found.gpus, found.cpus) == shape


def test_ranks_follow_the_gpus_that_a_rule_asks_for() -> None:
    rule = ArmResources(levels={"parallel": "replicas"}, gpus=2)
    cluster = ClusterConfig(gpus=4, cpus_per_task=3, arm_resources=[rule])
    manifest = arm_of("replicas", FOUR_GPUS, cluster)
    (found,) = pack_jobs.shapes(manifest, cluster, FOUR_GPUS).values()
    assert (found.gpus, found.cpus) == (2, 6)


def test_ranks_for_the_gpus_of_all_nodes_must_find_room_at_plan_time(command) -> None:
    sweep = command(DesignConfig("one_at_a_time"), workload="toys.devices:Devices")
    sweep.cluster = ClusterConfig(gpus=4, nodes=2, ntasks_per_node=2)
    with pytest.raises(ConfigError, match="room for 4 ranks on 2 nodes, and an arm has 8"):
        make_plan(sweep, FOUR_GPUS)


def test_what_jobs_may_get_is_in_reach_where_they_can_be_submitted(
    elsewhere: ClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = Device("cuda", 1, cores=ClusterConfig().cpus_per_task)
    assert executor_choice.devices_in_reach(Device()) == (Device(), unknown)
    monkeypatch.setattr(Elsewhere, "closed", "closed today")
    monkeypatch.setenv("PATH", "/nowhere")  # nor is Slurm there
    assert executor_choice.devices_in_reach(Device()) == (Device(),)


def test_describe_says_what_a_level_may_do_where_jobs_run(
    elsewhere: ClusterConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    describe("toys.devices:Devices")
    here = "needs two GPUs"
    assert here in capsys.readouterr().out  # jobs get one, too, unless more are asked for
    describe("digits")
    assert "where jobs run it may act" in capsys.readouterr().out
