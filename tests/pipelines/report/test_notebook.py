"""What a prompt and a notebook show of a comparison, a report, and a sweep that runs."""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.analysis import compare
from perfsweep.pipelines.analysis.compare import Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.report import notebook
from perfsweep.pipelines.report.notebook import Comparison, Report, comparison_html
from perfsweep.pipelines.report.progress_display import Ahead
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect, Event, Kind, Manifest, Outcome
from perfsweep.workloads.api import Device

EFFECT = Effect(id="e", design="one_at_a_time", toggle="amp", level="<bf16>", pairs=(("a", "b"),))
FOUND = EffectResult(EFFECT, "amp=<bf16>", "baseline", Verdict.SLOWER, 1.25, rounds=6)
WHOLE = compare.Comparison("demo", "pair", 0.01, Reference("naive", 1500.0, 6), (FOUND,), (), ("a note",))


def test_a_comparison_keeps_what_was_found_and_shows_it_at_a_prompt_as_the_terminal_does() -> None:
    shown = Comparison.of(WHOLE)
    assert replace(shown) == shown and shown.effects == WHOLE.effects and shown.notes == WHOLE.notes
    assert (shown.name, shown.unit, shown.margin, shown.reference) == ("demo", "pair", 0.01, WHOLE.reference)
    text = repr(shown)
    assert text.startswith("demo: 6 rounds; baseline naive: 1.5 us per pair\n") and text.endswith("- a note")
    lines = [" ".join(line.split()) for line in text.partition("one at a time")[2].splitlines()]
    assert "amp=<bf16> 1.25x slower" in lines[lines.index("LEAVE OFF") + 1]


def test_a_notebook_shows_noise_open_questions_and_conclusions_with_commands_as_code() -> None:
    lost = replace(FOUND, verdict=None, ratio=None, outcome="unsupported", note="needs <one> GPU")
    fast = replace(FOUND, verdict=Verdict.FASTER, ratio=0.5)
    noisy = replace(
        WHOLE, effects=(lost,), fastest=fast, winners=(fast,), workload="toy", noise=("a <noisy> machine",)
    )
    page = comparison_html(noisy)
    assert '<p class="open">! a &lt;noisy&gt; machine</p>' in page
    assert "<li>amp=&lt;bf16&gt;: needs &lt;one&gt; GPU</li>" in page
    assert "<b>Use it:</b> <code>perfsweep run workload=toy" in page and "<noisy>" not in page
    order = ["&lt;noisy&gt;", "CANNOT ACT HERE", "needs &lt;one&gt;", "Use it:", "<summary>Notes"]
    places = [page.index(one) for one in order]
    assert places == sorted(places), "noise, effects, what is open, what follows, notes"


def test_a_notebook_has_one_table_and_one_picture_and_folds_the_rest() -> None:
    timed = replace(FOUND, low=1.2, high=1.3)
    page = Comparison.of(replace(WHOLE, effects=(timed,)))._repr_html_()
    shown, *folded = page.split("<details>")
    assert shown.count("<table") == 1 and shown.count("<svg") == 1
    assert all("<svg" not in one for one in folded)
    other = Comparison.of(replace(WHOLE, name="other", effects=(timed,)))._repr_html_()
    names = [set(re.findall(r'id="(effects-[^"-]+)', text)) for text in (page, other)]
    assert len(names[0]) == 1 and names[0] != names[1], "pictures of one notebook share no names"


def test_a_report_is_a_path_and_links_the_page_from_where_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = Report(tmp_path / "runs" / "demo" / "report.html", WHOLE)
    assert os.fspath(report) == str(report) == str(tmp_path / "runs" / "demo" / "report.html")
    page = report._repr_html_()
    assert '<a href="runs/demo/report.html" target="_blank">runs/demo/report.html</a>' in page
    assert "<table" not in page and "demo: 6 rounds; baseline naive" in page
    assert repr(report) == f"Report(path={report.path!r})"


class Cell:
    """The output of a cell."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, str]] = {}
        self.messages = 0

    def __call__(self, content: dict[str, str], raw: bool, display_id: str, update: bool) -> None:
        assert raw and update == (display_id in self.outputs)
        self.outputs[display_id] = content
        self.messages += 1

    @property
    def only(self) -> dict[str, str]:
        (content,) = self.outputs.values()
        return content


@pytest.fixture
def manifest(command) -> Manifest:
    return plan.make_plan(command(DesignConfig("one_at_a_time", toggles=["work", "trouble"])), Device())


def event(manifest: Manifest, arm: int, outcome: Outcome = Outcome.OK, reason: str = "") -> Event:
    own: dict[str, Any] = {"outcome": outcome, "reason": reason}
    return Event(time=time.time(), arm=manifest.arms[arm].id, kind=Kind.TIMING, round=0, seconds=1.0, **own)


def ahead(manifest: Manifest, trials: int) -> Ahead:
    return Counter({(manifest.arms[1].id, Kind.TIMING): trials})


def test_one_output_has_the_newest_count_when_it_ends(manifest: Manifest) -> None:
    cell = Cell()
    with notebook.live(cell, manifest, ahead(manifest, 20)) as progress:
        assert cell.only["text/plain"].startswith("0 of 20 trials")
        for _ in range(19):
            progress(event(manifest, 1))
    assert cell.only["text/plain"].startswith(f"19 of 20 trials, round 1: {manifest.arms[1].label}")
    page = f'<progress value="19" max="20"></progress> {cell.only["text/plain"]}'
    assert cell.only["text/html"] == page, "and nothing of a table"


def test_the_first_failure_of_an_arm_is_shown_at_once_and_cannot_be_markup(manifest: Manifest) -> None:
    cell = Cell()
    with notebook.live(cell, manifest, ahead(manifest, 20)) as progress:
        for _ in range(2):
            progress(event(manifest, 1, Outcome.FAILED, "ValueError: <b>bad</b>"))
        assert cell.only["text/plain"].count("failed: ValueError: <b>bad</b>") == 1
    assert "&lt;b&gt;bad&lt;/b&gt;" in cell.only["text/html"]


@pytest.mark.parametrize(("shell", "is_one"), [(SimpleNamespace(kernel=1), True), (SimpleNamespace(), False)])
def test_a_notebook_is_a_shell_with_a_kernel(
    shell: object, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython)["get_ipython"], vars(display)["display"] = lambda: shell, print
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert notebook.notebook_display() is (print if is_one else None)
