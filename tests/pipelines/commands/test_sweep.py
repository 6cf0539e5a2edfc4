"""What `perfsweep sweep` says, and how it ends: planned, held, interrupted, broken off or whole."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from planned_sweeps import FAST, NAIVE, manifest, pack
from rich.console import Console

from perfsweep.pipelines.commands import sweep as module
from perfsweep.pipelines.commands.sweep import conclude
from perfsweep.pipelines.config.types import ClusterConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution.submitted import Held
from perfsweep.pipelines.publish.published import Published, PublishedRun
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.errors import ConfigError

PLAN = manifest(packs=tuple(pack(NAIVE, FAST, id=id, rounds=3) for id in ("p000", "p001")))


class Planned:
    """A plan of two packs, here or elsewhere."""

    def __init__(self, folder: Path, remote: bool = False, **command: Any) -> None:
        self.sweep = SimpleNamespace(folder=SweepFolder(folder), manifest=PLAN)
        cluster = ClusterConfig(executor="slurm" if remote else "local", time_min=60)
        self.command: Any = SweepCommand(
            workload={"name": "toys"}, sweep=SweepConfig(name="demo"), cluster=cluster, **command
        )
        self.place = SimpleNamespace(remote=remote)
        self.notices = ("beware of it",)
        self.device: Any = SimpleNamespace(type="cpu")

    def finished(self) -> int:
        return 1


@pytest.fixture
def out() -> StringIO:
    return StringIO()


@pytest.fixture
def console(out: StringIO) -> Console:
    return Console(file=out, width=100)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes a plan that every call of `api.plan` finds."""

    def make(**own: Any) -> Planned:
        found = Planned(tmp_path / "runs", **own)
        monkeypatch.setattr(module.api, "plan", lambda command, text: found)
        monkeypatch.setattr(
            module.pack_jobs, "shapes", lambda plan, *rest: dict.fromkeys(("p000", "p001"), SHAPE)
        )
        return found

    return make


SHAPE = module.pack_jobs.Shape(0, 1)


def text_of(out: StringIO) -> str:
    return " ".join(out.getvalue().split())


def raising(error: BaseException) -> Any:
    def measure(*given: Any) -> Any:
        raise error

    return measure


def test_a_sweep_that_is_held_says_why_and_how_to_come_back(
    planned: Any, console: Console, out: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned()
    monkeypatch.setattr(module.api, "measure", raising(Held({"job 7": "it is held"})))
    assert module.measured(console, found.command, "") == 3
    assert "beware of it nothing more will happen by itself: job 7: it is held" in text_of(out)
    assert f"perfsweep status {found.sweep.folder.path}" in text_of(out)


def test_ctrl_c_here_says_that_the_same_command_goes_on(
    planned: Any, console: Console, out: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned()
    monkeypatch.setattr(module.api, "measure", raising(KeyboardInterrupt()))
    assert module.measured(console, found.command, "") == 130
    kept = f"stopped; finished rounds are kept in {found.sweep.folder.path}."
    assert f"{kept} The same command continues where it stopped." in text_of(out)


def test_ctrl_c_leaves_jobs_that_were_submitted(
    planned: Any, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked = planned(remote=True), list[Any]()
    found.sweep.folder.path.mkdir(parents=True)
    found.sweep.folder.submissions_file.touch()
    monkeypatch.setattr(module.api, "measure", raising(KeyboardInterrupt()))
    monkeypatch.setattr(module.submitted, "unsubmitted", lambda folder, plan: ["p001"])
    executor = SimpleNamespace(cancel=lambda: 7)
    monkeypatch.setattr(
        module.launch, "resume", lambda *words: executor if words[2] is found.command.cluster else None
    )
    monkeypatch.setattr(
        module.progress_display,
        "detach",
        lambda console, path, cancel, left: asked.append((path, cancel(), left)),
    )
    assert module.measured(console, found.command, "") == 130
    assert asked == [(str(found.sweep.folder.path), 7, 1)]


def test_a_dry_run_elsewhere_shows_what_would_be_submitted(
    planned: Any, console: Console, out: StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked = planned(dry_run=True, remote=True, retry=["oom"]), list[Any]()

    def batch_texts(folder: Any, plan: Any, packs: Any, cluster: Any, device: Any, retry: Any) -> list[str]:
        asked.append(([one.id for one in packs], retry))
        return ["#!/bin/bash [one]"]

    monkeypatch.setattr(module.launch, "batch_texts", batch_texts)
    assert module.measured(console, found.command, "") == 0
    assert asked == [(["p000", "p001"], ("oom",))]
    assert "2 packs with" in text_of(out) and "#!/bin/bash [one]" in text_of(out)
    assert "at most 2.0 hours" in text_of(out)


class Compared:
    """A sweep that was compared."""

    def __init__(self, folder: Path) -> None:
        self.folder: Any = SweepFolder(folder)
        self.manifest: Any = None
        self.comparison: Any = SimpleNamespace(failed=False)

    def report(self) -> str:
        return "report.html"


RUN = PublishedRun("a", "naive", "p000", "id", "wandb/run", 3, 3, "written")


@pytest.mark.parametrize(("broken", "status"), [({}, 0), ({"p001": "no memory"}, 1)])
def test_a_sweep_concludes_with_its_tables_and_what_was_published(
    console: Console,
    out: StringIO,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: dict,
    status: int,
) -> None:
    done = Published(runs=(RUN,))
    monkeypatch.setattr(module.publishing, "publish", lambda folder: done)
    monkeypatch.setattr(module, "published_line", lambda published, folder: f"published {published is done}")
    monkeypatch.setattr(module.terminal_table, "show", lambda console, comparison: console.print("tables"))
    sweep: Any = Compared(tmp_path)
    monkeypatch.setattr(module, "Sweep", lambda folder, manifest: sweep)
    assert conclude(console, sweep, broken) == status
    lines = [f"pack {name} broke off: {why}" for name, why in broken.items()]
    assert out.getvalue().splitlines() == [*lines, "tables", "report: report.html", "published True"]


def test_nobody_is_measured_who_was_not_named(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = planned()
    monkeypatch.setattr(module.validation, "typed", lambda cfg, of: found.command)
    with pytest.raises(ConfigError) as refused:
        module.ask(OmegaConf.create())
    assert str(refused.value).startswith(
        "which workload? `perfsweep sweep workload=toys` would measure its sweep demo: 2 arms in"
        f" {PLAN.sweep.measure.rounds} rounds, 12 timed trials; choose from: "
    )
    found.command.dry_run = True
    monkeypatch.setattr(module, "sweep", lambda cfg: 42)
    assert module.ask(OmegaConf.create()) == 42
