"""Environments as levels of a toggle that the sweep provides, beside commits and other toggles."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import bare
from git_repository import begin, commit, state

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.provided import find_provided
from perfsweep.pipelines.profiling.profile_trials import Profiling
from perfsweep.pipelines.store.records import Kind, Manifest, Outcome, SweepFolder, TrialSpec
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def asked(command, folder: Path):
    def asked(*environments: object, **axes: list[object]):
        given = command(DesignConfig("one_at_a_time"), workload="script")
        given.workload = {"name": "script", "path": "train.py", "folder": str(folder / "repo")}
        given.axes = {"environment": list(environments), **axes}
        given.runs = str(folder / "runs")
        return given

    return asked


def twins(folder: Path) -> tuple[str, str]:
    """Two environments that differ by a library that nothing uses."""
    for name, version in (("env-a", "1.0"), ("env-b", "2.0")):
        if not (folder / name).exists():
            bare(folder / name, pace=(version, ""))
    return str(folder / "env-a"), str(folder / "env-b")


@pytest.mark.parametrize(
    ("environments", "sentence"),
    [
        ((".venv",), r"names one environment; name the base first: 'axes.environment=\[.venv,.venv\]'"),
        ((3.12, ".venv"), r"axes.environment=3.12: name environments, as 'axes"),
        (("nowhere", ".venv"), "axes.environment: nowhere does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(asked, environments: tuple[object, ...], sentence: str) -> None:
    given = asked(*environments)
    given.workload = {"name": "digits"}
    with pytest.raises(ConfigError, match=sentence):
        find_provided(plan.load_workload(given.workload)[0], given)


def specs(manifest: Manifest, folder: Path) -> dict[str, TrialSpec]:
    return {arm.label: manifest.sweep.trial_spec(arm, Kind.TIMING, "p000", folder) for arm in manifest.arms}


TRAIN = """
import os, sys, torch
import work
os.environ['TOKENIZERS_PARALLELISM'] = 'false'  # before torch is used: trials start by exec
print('runs', work.SPEED, 'in', sys.prefix)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10_000):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_commits_and_environments_are_versions_whose_trials_have_their_own_code_and_packages(
    asked, folder: Path, tmp_path: Path
) -> None:
    """By exec; by fork they do so in the tests of `perfsweep judge`."""
    root = begin(folder / "repo")
    commit(root, {"train.py": TRAIN, "work.py": "SPEED = 'fast'\n"}, "base")
    commit(root, {"work.py": "SPEED = 'slow'\n"}, "slow")
    before = state(root)
    one, other = twins(folder)
    given = asked(one, other, f"{one}/bin/python", commit=["base", "slow"], zero_grad=["none"])
    manifest = plan.make_plan(given, Device())
    rows = {(effect.toggle, effect.level) for effect in manifest.effects}
    assert rows == {("environment", other), ("commit", "slow"), ("zero_grad", "none")}
    (refused,) = manifest.refused
    assert f"has the same interpreter and packages as environment={one}: it has no effect" in refused.reason
    own = specs(manifest, folder)
    assert len({spec.code for spec in own.values()}) == 2, "code is the commit's"
    assert len({spec.installed for spec in own.values()}) == 2, "packages are the environment's"
    assert all(not {"commit", "environment"} & set(spec.arm.levels) for spec in own.values()), (
        "a workload is told of no version"
    )
    assert manifest.packs[0].start == "exec"
    sweep = SweepFolder(tmp_path / "sweep")
    launch.prepare(sweep, manifest, "")
    with pytest.raises(ConfigError, match="with versions are not profiled"):
        Profiling(sweep, manifest, manifest.arms[0])
    run = pack.PackRun(sweep, manifest, manifest.packs[0])
    for arm in (arm for arm in manifest.arms if arm.levels["zero_grad"] != "none"):
        trial = run.again(arm, Kind.EVIDENCE)
        assert trial.record.outcome is Outcome.OK, trial.record.failure
        speed = {"base": "fast", "slow": "slow"}[arm.levels["commit"]]
        assert f"runs {speed} in {arm.levels['environment']}\n" in (trial.folder / "log.txt").read_text()
    assert state(root) == before
