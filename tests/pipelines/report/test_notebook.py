"""What a prompt and a notebook show of a comparison and of a report."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from perfsweep.pipelines.analysis import compare
from perfsweep.pipelines.analysis.compare import Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.report.notebook import Comparison, Report, comparison_html
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect

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


def test_a_notebook_shows_the_answer_the_tables_and_the_notes() -> None:
    page = Comparison.of(WHOLE)._repr_html_()
    assert "<b>demo</b>: 6 rounds; baseline naive: 1.5 us per pair." in page
    assert ">LEAVE OFF</th>" in page and ">1.25x slower</td>" in page and "<li>a note</li>" in page
    assert "<table" in page and "With pictures" not in page and "<bf16>" not in page
    assert "<details>" not in comparison_html(replace(WHOLE, notes=())), "no notes, no list of them"


def test_a_notebook_shows_noise_open_questions_and_conclusions_with_commands_as_code() -> None:
    lost = replace(FOUND, verdict=None, ratio=None, outcome="unsupported", note="needs <one> GPU")
    fast = replace(FOUND, verdict=Verdict.FASTER, ratio=0.5)
    noisy = replace(WHOLE, effects=(lost,), winners=(fast,), workload="toy", noise=("a <noisy> machine",))
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
