"""Environments as levels of a toggle that the sweep provides, beside commits and other toggles."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import bare
from versioned import scripted

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.provided import find_provided
from perfsweep.pipelines.store.records import Kind, Manifest, Outcome, SweepFolder, TrialSpec
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def asked(command, folder: Path):
    def asked(*environments: object, kind: str = "one_at_a_time", **axes: list[object]):
        given = command(DesignConfig(kind), workload="script")
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


@pytest.mark.slow
def test_environments_cross_commits_and_each_combination_is_a_version(asked, folder: Path) -> None:
    scripted(folder / "repo")
    one, other = twins(folder)
    manifest = plan.make_plan(asked(one, other, kind="factorial", commit=["base", "slow"]), Device())
    chosen = {tuple(version.levels.values()) for version in manifest.sweep.versions}
    assert chosen == {(commit, env) for commit in ("base", "slow") for env in (one, other)}
    assert {effect.toggle for effect in manifest.effects} >= {"commit", "environment", "environment x commit"}
    own = specs(manifest, folder)
    assert len(manifest.arms) == len(own) == 4
    assert len({spec.code for spec in own.values()}) == 2, "code is the commit's"
    assert len({spec.installed for spec in own.values()}) == 2, "packages are the environment's"
    assert all(not {"commit", "environment"} & set(spec.arm.levels) for spec in own.values())


@pytest.mark.slow
def test_a_trial_by_exec_runs_in_its_environment(asked, folder: Path, tmp_path: Path) -> None:
    """By fork they do so in the tests of `perfsweep judge`."""
    one, other = twins(folder)
    (folder / "train.py").write_text(
        "import os, sys, torch\n"
        "os.environ['TOKENIZERS_PARALLELISM'] = 'false'\n"
        "print('runs in', sys.prefix)\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "for _ in range(10_000):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    given = asked(one, other, f"{one}/bin/python")
    given.workload = {"name": "script", "path": "train.py", "folder": str(folder)}
    manifest = plan.make_plan(given, Device())
    (refused,) = manifest.refused
    assert f"has the same interpreter and packages as environment={one}: it has no effect" in refused.reason
    assert manifest.packs[0].start == "exec"
    sweep = SweepFolder(tmp_path / "sweep")
    launch.prepare(sweep, manifest, "")
    run = pack.PackRun(sweep, manifest, manifest.packs[0])
    for arm in manifest.arms:
        trial = run.again(arm, Kind.EVIDENCE)
        assert trial.record.outcome is Outcome.OK, trial.record.failure
        assert f"runs in {arm.levels['environment']}\n" in (trial.folder / "log.txt").read_text()
