"""Executors by name: a new one is one class and one entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from recorded import build

from pipelines.config.types import ClusterConfig
from pipelines.execution import executor_choice, launch, submitted
from pipelines.execution.executor_choice import Choice
from slurm import executors
from slurm.errors import ClusterError
from slurm.jobs import Executor, ExecutorContext, Job, JobState, Refusal
from slurm.site import SiteProfile
from workloads.api import Device


class Elsewhere(Executor):
    """A place that keeps a list of what it was handed, in the sweep's folder."""

    remote = True
    closed: ClassVar[str | None] = None

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
    entries = {"elsewhere": "slurm.executors:Elsewhere", **executors.EXECUTORS}
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
