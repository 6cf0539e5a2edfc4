"""Environments as levels of a toggle that the sweep provides, beside commits and the workload's own toggles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from environments import bare
from versioned import scripted

from pipelines.config.types import DesignConfig
from pipelines.execution import launch, pack
from pipelines.plan import plan
from pipelines.plan.provided import find_provided
from pipelines.store.progress import read_progress
from pipelines.store.records import Kind, Manifest, Outcome, SweepFolder, TrialSpec
from workloads.api import Device
from workloads.errors import ConfigError


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
        ((".venv",), r"names one environment; name the base first: axes.environment=\[.venv,.venv\]"),
        ((3.12, ".venv"), r"axes.environment=3.12: name an environment, such as"),
        (("nowhere", ".venv"), "axes.environment: nowhere does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(asked, environments: tuple[object, ...], sentence: str) -> None:
    given = asked(*environments)
    given.workload = {"name": "digits"}
    with pytest.raises(ConfigError, match=sentence):
        find_provided(plan.load_workload(given.workload)[0], given)


def specs(manifest: Manifest, folder: Path) -> dict[str, TrialSpec]:
    return {
        arm.label: TrialSpec.of(manifest.sweep, arm, Kind.TIMING, "p000", folder) for arm in manifest.arms
    }


@pytest.mark.slow
def test_environments_cross_commits_and_each_combination_is_a_version(asked, folder: Path) -> None:
    scripted(folder / "repo")
    one, other = twins(folder)
    manifest = plan.make_plan(asked(one, other, kind="factorial", commit=["base", "slow"]), Device())
    chosen = {tuple(version.levels.values()) for version in manifest.sweep.versions}
    assert chosen == {(commit, env) for commit in ("base", "slow") for env in (one, other)}
    assert {effect.toggle for effect in manifest.effects} >= {"commit", "environment", "commit x environment"}
    own = specs(manifest, folder)
    assert len(manifest.arms) == len(own) == 4
    assert len({spec.code for spec in own.values()}) == 2, "code is the commit's"
    assert len({spec.installed for spec in own.values()}) == 2, "packages are the environment's"
    assert all(not {"commit", "environment"} & set(spec.arm.levels) for spec in own.values())


@pytest.mark.slow
def test_one_environment_by_two_names_is_one_arm(asked, folder: Path) -> None:
    one, other = twins(folder)
    given = asked(one, other, f"{one}/bin/python")
    given.workload = {"name": "toys.addresses:Addresses"}
    (refused,) = plan.make_plan(given, Device()).refused
    assert refused.level == f"{one}/bin/python"
    assert f"has the same interpreter and packages as environment={one}: it is inert" in refused.reason


@pytest.mark.slow
def test_trials_run_in_their_environments_by_fork_and_by_exec(asked, folder: Path, tmp_path: Path) -> None:
    one, other = twins(folder)
    (folder / "train.py").write_text(
        "import importlib.metadata, sys, torch\n"
        "assert not [name for name in ('pydantic', 'omegaconf', 'wandb') if name in sys.modules]\n"
        "model = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.prefix.endswith('b')))\n"
        "for _ in range(10_000):\n"
        "    optimizer.zero_grad()\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    for allocator in ((), ("system",)):  # of the second, levels set variables: trials start by exec
        given = asked(one, other, **({"allocator": ["system", "steady"]} if allocator else {}))
        given.workload = {"name": "script", "path": "train.py", "folder": str(folder)}
        given.measure.rounds = 1
        manifest = plan.make_plan(given, Device())
        assert manifest.packs[0].start == ("exec" if allocator else "fork")
        sweep = SweepFolder(tmp_path / manifest.packs[0].start)
        launch.prepare(sweep, manifest, "")
        code = "import sys; from pipelines.execution import pack; sys.exit(pack.main(sys.argv[1:]))"
        subprocess.run([sys.executable, "-c", code, str(sweep.path), "p000"], check=True)
        progress = read_progress(sweep, manifest)
        for arm in manifest.arms:
            trials = [trial for trial in progress.every if trial.record.arm == arm.id]
            assert {trial.record.outcome for trial in trials} == {Outcome.OK}, arm.label
            assert {trial.record.kind for trial in trials} >= {Kind.TIMING, Kind.COUNTING, Kind.EVIDENCE}
        assert len(list((sweep.code_dir).glob("libraries-greenlet-*"))) == 1


@pytest.mark.slow
def test_an_environment_that_changed_after_the_plan_measures_nothing(
    asked, folder: Path, tmp_path: Path
) -> None:
    one, other = twins(folder)
    given = asked(one, other)
    given.workload = {"name": "toys.addresses:Addresses"}
    given.measure.rounds = 1
    manifest = plan.make_plan(given, Device())
    sweep = SweepFolder(tmp_path / "sweep")
    launch.prepare(sweep, manifest, "")
    (site,) = Path(other).glob("lib/python*/site-packages")
    (site / "another-3.0.dist-info").mkdir()
    try:
        pack.main([str(sweep.path), "p000"])
    finally:
        (site / "another-3.0.dist-info").rmdir()
    failures = [
        trial.record.failure.message
        for trial in read_progress(sweep, manifest).every
        if trial.record.failure and trial.record.kind is Kind.EVIDENCE
    ]
    assert failures and all("are not those that the sweep was planned with" in one for one in failures)
    assert json.dumps(failures)
