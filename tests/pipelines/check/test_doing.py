"""What a person who waits for a check sees: how far it is, how long it took, and how long it will."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from perfsweep.pipelines.check.rules import Defect, Finding
from perfsweep.pipelines.commands import doctor as check
from perfsweep.pipelines.config.types import MeasureConfig
from perfsweep.pipelines.store.records import Refused
from perfsweep.workloads.api import Device


class Ended:
    """A check of a workload that has ended."""

    def __init__(self, *findings: Finding, log: Path | None = None, **fields: Any) -> None:
        self.name, self.trials, self.trials_ahead, self.compared = "mine:Own", 9, 12, 4
        self.left_out: dict[str, str] = {}
        self.choices: dict[str, str] = {}
        sweep = SimpleNamespace(measure=MeasureConfig(timeout_s=90.0))
        self.manifest = SimpleNamespace(refused=fields.pop("refused", ()), arms=(1, 2, 3), sweep=sweep)
        self.device = Device()
        self.told, self.log = findings, log
        vars(self).update(fields)

    def findings(self) -> Iterator[Finding]:
        self.tell("a trial")  # type: ignore[attr-defined]
        yield from self.told

    def keep_log(self) -> Path | None:
        return self.log


def checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ended: Ended) -> Any:
    """Exit status and what was printed."""
    asked = list[Any]()

    @contextmanager
    def checking(cfg: Any, values: Any, toggles: Any) -> Iterator[Ended]:
        asked.append((values, toggles))
        yield ended

    monkeypatch.setattr(check, "checking", checking)
    status = check.run_check(OmegaConf.create({"workload": {"name": "mine:Own"}}), ["workload.x=1"], ["amp"])
    assert asked == [(["workload.x=1"], ["amp"])]
    return status, capsys.readouterr().out


FAILS = Finding(Defect.FAILS, "mine:Own, baseline", "ValueError: [batch]")


def test_a_sound_workload_is_told_what_was_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = checked(monkeypatch, capsys, Ended())
    assert status == 0
    assert out.splitlines()[0].startswith("checking mine:Own: 3 arms on ")
    assert "about 12 trials of at most 90 s each (measure.timeout_s)" in " ".join(out.split())
    assert "and 4 levels take effect and keep their parity class" in " ".join(out.split())
    assert "log: " not in out and "not checked" not in out


@pytest.mark.parametrize(("count", "sum_"), [(1, "1 defect in mine:Own"), (2, "2 defects in mine:Own")])
def test_defects_are_told_as_they_are_found_and_counted(
    count: int, sum_: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Path("runs") / ("folder-with-a-name" * 8) / "log.txt"
    status, out = checked(monkeypatch, capsys, Ended(*[FAILS] * count, log=log))
    assert status == 1
    assert out.count("it fails: mine:Own, baseline\nValueError: [batch]\n") == count
    assert f"\n{sum_}\nlog: {log}\n9 trials in " in out, "a path is not broken, however narrow it is"
    assert "no defects" not in out


def test_what_was_not_checked_and_what_is_no_defect_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = (Refused(design="d", toggle="amp", level="on", reason="needs a GPU"),)
    own = {"left_out": {"slab=8": "needs more time"}, "choices": {"form=on": "another form"}}
    _, out = checked(monkeypatch, capsys, Ended(refused=refused, **own))
    lines = ["not checked: amp=on: needs a GPU", "not checked: slab=8: needs more time"]
    assert "\n".join([*lines, "no defect: form=on: another form", ""]) in out


def test_who_waits_elsewhere_than_at_a_terminal_is_told_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, out, ended = [0.0], StringIO(), Ended()
    monkeypatch.setattr(check, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ended.trials = 0
    doing: Any = check.Doing(Console(file=out, width=100), ended)  # type: ignore[arg-type]
    assert str(doing) == "trial 1 of about 12, 0 s: setting up"
    every = check.LOG_EVERY_S
    for share, trials, what in ((0.9, 0, "a"), (1.1, 2, "b"), (1.2, 3, "c"), (2.2, 12, "d")):
        now[0], ended.trials = share * every, trials
        doing(what)
    first, last = (f"{share * every:.0f} s" for share in (1.1, 2.2))
    left = f"{1.1 * every / 2 * 10:.0f} s"
    told = [f"trial 3 of about 12, {first}, about {left} left: b"]
    assert out.getvalue().splitlines() == [
        *told,
        f"trial 13 of about 13, {last}, about {2.2 * every / 12:.0f} s left: d",
    ]
