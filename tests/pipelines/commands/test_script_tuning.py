"""`perfsweep tune train.py`: what it says of a patch, when it writes one, and that its effect is real."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typed import ended

from perfsweep.pipelines.check.first_look import Parting, Seen
from perfsweep.pipelines.commands import script_looking, script_tuning
from perfsweep.pipelines.commands.judge import TwoVersions
from perfsweep.pipelines.commands.script_tuning import Measured
from perfsweep.pipelines.config.types import TuneCommand, TuneConfig
from perfsweep.pipelines.exits import DONE, MISTAKE, SOME_FAILED
from perfsweep.pipelines.report.version_answer import Answer, Side
from perfsweep.pipelines.terminal import plain_console
from perfsweep.pipelines.versions.tree import Patched, keep_patch
from perfsweep.workloads.api import Evidence
from perfsweep.workloads.errors import ConfigError, PerfsweepError
from perfsweep.workloads.script.workload import Script

FILE = Path("runs/train-tune/train.patch")
TIMES = {"ratio": 0.709, "low": 0.69, "high": 0.73}


def answer(verdict: str, results: str = "within tolerance", **fields: object) -> Answer:
    return Answer(Side("original", None), Side("patch", None), verdict, results, 0, 0.025, **fields)  # type: ignore[arg-type]


SAID = {
    "faster": (
        answer("faster", **TIMES),
        120.4e6,
        "train.py is 1.41x as fast [1.37 .. 1.45], results in tolerance, +120 MB;"
        " patch: runs/train-tune/train.patch",
    ),
    "other results": (
        answer("different results", "different", deviation="losses: 0.2, allowed 0.001", **TIMES),
        0.0,
        "train.py as patched: different results (losses: 0.2, allowed 0.001); no patch is kept",
    ),
    "no interval": (
        answer("undecided", ratio=0.7, reason="one round has no interval"),
        None,
        "train.py as patched: undecided; one round has no interval; patch: runs/train-tune/train.patch",
    ),
    "a patch that does not run": (
        answer("failed", "unchecked", reason="TypeError: unexpected keyword argument 'fused'"),
        None,
        "train.py as patched: failed (TypeError: unexpected keyword argument 'fused'); no patch is kept",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_the_last_line_says_what_the_patch_buys(name: str) -> None:
    found, memory_bytes, line = SAID[name]
    assert script_tuning.bought("train.py", FILE, found, memory_bytes) == line


def measured(script: Path, levels: dict[str, object], digest: str | None = None) -> Measured:
    known = hashlib.sha256(script.read_bytes()).hexdigest() if digest is None else digest
    sight = {"files": {str(script): known}, "sites": []}
    return Measured("train.py", ("--lr=1",), Path("runs/train-tune"), levels, Script, sight)  # type: ignore[arg-type]


def test_of_a_file_that_changed_since_it_was_looked_at_no_patch_is_written(script: Path) -> None:
    with pytest.raises(ConfigError, match="since it was measured: no patch is written"):
        script_tuning.patch(plain_console(), measured(script, {"optimizer": "fused"}, "0" * 64), [])
    assert not FILE.exists()


def test_where_no_line_can_be_changed_the_levels_can_be_applied_from_outside(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FILE.write_text("of an earlier run")
    assert script_tuning.patch(plain_console(), measured(script, {"sdpa": "math"}), []) == SOME_FAILED
    said = capsys.readouterr().out
    assert "no call that sdpa=math changes was seen" in said
    assert (
        "no line of train.py can be changed for you. Without a change:"
        " perfsweep run train.py --with runs/train-tune/tuned.yaml -- --lr=1\n"
    ) in said
    assert not FILE.exists() and not script_tuning.is_kept(Path("runs/train-tune"), ["--lr=1"])


@pytest.mark.parametrize("end", [KeyboardInterrupt(), PerfsweepError("pack p000 broke off")])
def test_a_patch_that_was_not_measured_to_the_end_is_not_kept(
    script: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    kept = []

    def compare(*about: object) -> None:
        kept.append(FILE.read_text())
        raise end

    monkeypatch.setattr(TwoVersions, "compare", compare)
    script.write_text("o = AdamW(p)\n")
    line = {"file": str(script), "scope": 0, "line": 1}
    about = measured(script, {"optimizer": "fused"})
    about.sight["sites"].append(SITE | {"file": str(script), "lines": [line]})
    words = ["workload=script", "workload.path=train.py"]
    with pytest.raises(type(end)):
        script_tuning.patch(plain_console(), about, words)
    assert "+o = AdamW(p, fused=True)" in kept[0]
    assert not FILE.exists() and not script_tuning.is_kept(FILE.parent, ["--lr=1"])


LEVELS = {"optimizer": ["fused", "foreach"], "amp": ["bf16"], "num_workers": [0, 2]}


def able(obstacles: dict[str, str], *toggles: str) -> dict[str, list[object]]:
    return script_tuning.able(TuneConfig(levels=LEVELS, toggles=list(toggles)), Script.toggles, obstacles)  # type: ignore[arg-type]


def test_levels_that_cannot_act_are_not_tried_and_a_toggle_that_there_is_not_is_named() -> None:
    obstacles = {"amp": "it autocasts itself", "num_workers=0": "it has none already"}
    assert able(obstacles) == {"optimizer": ["fused", "foreach"], "num_workers": [2]}
    with pytest.raises(ConfigError, match=r"tune\.toggles=optimiser: it is no toggle\..* optimizer"):
        able({}, "optimiser")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script with a patch that was measured for the argument --lr=1."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    file.write_text("lr = 1\n")
    facts = Patched({str(file): hashlib.sha256(file.read_bytes()).hexdigest()}, (str(file),), ("--lr=1",))
    keep_patch(tmp_path / "runs/train-tune/patch", facts, {str(file): b"lr = 2\n"})
    return file


def tune(*words: str) -> int:
    return ended("tune", *words)


def test_a_patch_is_written_when_it_is_asked_for(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("train.py", "--apply", "--", "--lr=1") == DONE
    assert capsys.readouterr().out == f"patched: {script}\n"
    assert script.read_text() == "lr = 2\n"
    assert tune("train.py", "--apply", "--", "--lr=1") == MISTAKE
    assert "the patch is applied already" in capsys.readouterr().err


def test_a_script_that_changed_since_it_was_measured_stays_as_it_is(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text("lr = 3\n")
    assert tune("train.py", "--apply", "--", "--lr=1") == MISTAKE
    said = capsys.readouterr().err
    assert "train.py has changed since it was measured: nothing is written" in said and said.count("\n") == 1
    assert script.read_text() == "lr = 3\n"


def test_apply_is_about_a_script(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("workload=digits", "--apply") == MISTAKE
    assert "these options are about a script; name it, as train.py" in capsys.readouterr().err


SCRIPT = """
import torch
from torch import optim  # ✓
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = optim.AdamW(model.parameters(), lr=1e-3)  # fused is faster: see below
while True:
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
    for _ in range(1_000 if optimizer.defaults["fused"] else 40_000):
        pass
"""

SMALL = (
    *("tune.levels.optimizer=[fused]", "tune.toggles=[optimizer]", "tune.rounds=2"),
    *(
        "measure.rounds=6",
        "measure.precision=0.5",
        "measure.servers=1",
        "measure.repeats=0",
        "measure.timed_parity=false",
    ),
    *("measure.warmup_max=5", "measure.iterations=6", "measure.evidence_iterations=4"),
    "cluster.executor=inprocess",
)


@pytest.mark.slow
def test_what_wins_becomes_a_patch_whose_effect_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(script_tuning, "JUDGED", ("measure.servers=1", "measure.precision=0.5"))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    status, said = tune("train.py", *SMALL), capsys.readouterr()
    lines = said.out.splitlines()
    shown = "train.py:6  AdamW(..., lr=1e-3)  ->  AdamW(..., lr=1e-3, fused=True)"
    assert f"  {shown}" in lines, said
    last = re.fullmatch(
        r"train\.py is ([\d.]+)x as fast \[([\d.]+) \.\. ([\d.]+)\](, which is \w+)?,"
        r" results (in tolerance|identical), [+-]\d+ MB; patch: runs/train-tune/train\.patch",
        lines[-1],
    )
    assert last and float(last[1]) > 2, said
    assert status == (1 if last[4] else 0)
    assert script.read_text() == SCRIPT, "the script stays as it is until --apply"
    assert yaml.safe_load(Path("runs/train-tune/tuned.yaml").read_text()) == {"optimizer": "fused"}
    patch = Path("runs/train-tune/train.patch").read_text()
    assert patch.startswith("--- a/train.py\n+++ b/train.py\n")
    assert "+optimizer = optim.AdamW(model.parameters(), lr=1e-3, fused=True)  # fused is faster" in patch
    assert tune("train.py", *SMALL, "--apply") == 0
    assert script.read_text() == SCRIPT.replace("lr=1e-3)", "lr=1e-3, fused=True)")


@pytest.fixture
def seen(script: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says what a look at the script shows."""

    def make(
        parting: Parting | None, script: Path | None = None, sites: list | None = None, **obstacles: str
    ) -> None:
        files = {str(script): hashlib.sha256(script.read_bytes()).hexdigest()} if script else {}
        found = Seen({"sight": {"obstacles": obstacles, "files": files, "sites": sites or []}}, Evidence())
        monkeypatch.setattr(script_looking, "looked", lambda *about: (found, parting))

    return make


SITE = {
    "what": "optimizer",
    "called": "AdamW",
    "line": 1,
    "end": [1, 12],
    "holders": [],
    "options": ["fused"],
}
TRIED = ("tune.toggles=[optimizer,amp,gc]", "tune.levels.optimizer=[fused]")


@pytest.mark.parametrize("name", ["faster", "other results"])
def test_what_wins_is_shown_as_a_patch_and_kept_unless_it_changes_results(
    name: str,
    script: Path,
    seen: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, memory_bytes, line = SAID[name]
    script.write_text("o = AdamW(p)\n")
    place = {"file": str(script), "scope": 0, "line": 1}
    seen(None, script, [SITE | {"file": str(script), "lines": [place]}], amp="it autocasts itself")
    asked = list[Any]()

    def tuned(console: Any, command: TuneCommand, cfg: Any, place: Path) -> tuple[int, dict[str, str]]:
        asked.append((command.tune.toggles, command.tune.levels, command.toggles, str(place)))
        return DONE, {"optimizer": "fused"}

    def compare(versions: TwoVersions, base: Side, head: Side, said: object) -> Answer:
        asked.append((base.name, head.name, versions.overrides[-9:]))
        return found

    monkeypatch.setattr(script_tuning.frontier, "tuned", tuned)
    monkeypatch.setattr(TwoVersions, "compare", compare)
    monkeypatch.setattr(script_tuning, "_memory_bytes", lambda answer: memory_bytes)
    words = ("measure.rounds=5", "measure.seed=3", "measure.budget_s=9", "tune.rounds=2")
    status = tune("train.py", *TRIED, *words, "--timeout=7", "--", "--lr=1")
    assert status == (DONE if name == "faster" else SOME_FAILED)
    shown = "train.py:1  AdamW(...)  ->  AdamW(..., fused=True)"
    assert capsys.readouterr().out == f"\npatch of train.py\n  {shown}\n{line}\n"
    tried = {"optimizer": ["fused"], "gc": ["frozen", "off"]}
    assert asked[0] == ([], tried, {"gc": "automatic"}, "runs/train-tune/tuned.yaml"), (
        "a toggle on request is named"
    )
    own = ("workload=script", "workload.path=train.py", "workload.args=--lr=1", "measure.timeout_s=7.0")
    judged = ("measure.seed=3", "runs=runs", "name=train-tune-judged")
    assert asked[1][:2] == ("original", "runs/train-tune/patch") and asked[1][2][-7:] == (*own, *judged)
    kept = not line.endswith("no patch is kept")
    assert FILE.exists() is script_tuning.is_kept(FILE.parent, ["--lr=1"]) is kept
    assert not kept or "-o = AdamW(p)\n+o = AdamW(p, fused=True)\n" in FILE.read_text()


@pytest.mark.parametrize(
    ("status", "dry", "out"),
    [
        (DONE, False, "train.py: no toggle makes it faster with the same results; no patch is written\n"),
        (SOME_FAILED, True, ""),
    ],
)
def test_where_nothing_wins_no_patch_is_written_and_the_status_is_that_of_the_search(
    status: int,
    dry: bool,
    out: str,
    script: Path,
    seen: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen(None, script)
    monkeypatch.setattr(script_tuning.frontier, "tuned", lambda *about: (status, None))
    assert tune("train.py", *TRIED, f"dry_run={str(dry).lower()}") == status
    assert capsys.readouterr().out == out and not FILE.exists()


def test_a_script_whose_results_cannot_be_compared_is_to_be_seeded_first(
    seen: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    seen(Parting(1, "It has no seed"))
    assert tune("train.py", *SMALL) == MISTAKE
    said = capsys.readouterr().err
    assert "train.py does not repeat itself, so results of its arms cannot be compared" in said
    assert "two runs part at iteration 1. It has no seed. Seed it first, then tune it" in said


def test_a_script_on_which_nothing_can_act_is_told_so(
    seen: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    seen(None, optimizer="has one of its own")
    assert tune("train.py", *SMALL) == DONE
    said = capsys.readouterr().out
    assert "train.py: no toggle that is to be tried can act: has one of its own" in said
