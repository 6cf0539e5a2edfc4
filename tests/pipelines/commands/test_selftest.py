"""The self-test: placebos and known delays, measured as any sweep is, and what counts as resolved."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.commands import selftest
from perfsweep.pipelines.commands.selftest import Resolution, passes
from perfsweep.pipelines.config.types import ClusterConfig, SweepCommand
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect


def resolution(delay: int, verdict: Verdict, low: float = 0.5, high: float = 2.0) -> Resolution:
    effect = Effect(id="e", design="one_at_a_time", toggle="delay", level=str(delay), pairs=(("a", "b"),))
    return Resolution(delay, EffectResult(effect, "a", "b", verdict, ratio=1.0, low=low, high=high))


GOOD = [
    resolution(0, Verdict.UNDECIDED),
    resolution(1, Verdict.UNDECIDED),
    resolution(3, Verdict.SLOWER),
    resolution(10, Verdict.SLOWER),
]


@pytest.mark.parametrize(
    ("place", "verdict"), [(0, Verdict.SLOWER), (2, Verdict.UNDECIDED), (3, Verdict.NO_DIFFERENCE)]
)
def test_a_false_word_or_a_missed_delay_fails(place: int, verdict: Verdict) -> None:
    found = list(GOOD)
    found[place] = resolution(found[place].delay, verdict)
    assert not passes(found)


def test_an_interval_that_misses_the_injected_delay_is_seen() -> None:
    assert resolution(3, Verdict.SLOWER, 1.02, 1.04).covered
    assert not resolution(3, Verdict.SLOWER, 1.04, 1.06).covered


MACHINE = pl.DataFrame(
    {"kind": ["timing", "timing", "evidence"], "disturbed": ["", "load 9", "a swap"], "server": [0, 1, 2]}
)


def test_the_answer_has_a_row_for_each_delay_and_says_how_far_the_machine_is_fit() -> None:
    out = StringIO()
    placebo = resolution(0, Verdict.UNDECIDED, 0.99, 1.01)
    slower, unmeasured = resolution(3, Verdict.SLOWER, 1.04, 1.06), resolution(10, Verdict.SLOWER)
    slower = replace(slower, result=replace(slower.result, ratio=1.05, rounds=12))
    unmeasured = replace(unmeasured, result=replace(unmeasured.result, verdict=None, ratio=None))
    found = [placebo, slower, unmeasured]
    selftest._show(Console(file=out, width=120), found, MACHINE, 61.4)
    rows = [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]
    assert "placebo 0 +0.00% -1.00% .. +1.00% 0 undecided yes" in rows
    assert "3 % +5.00% +4.00% .. +6.00% 12 slower yes, interval misses it" in rows
    assert "10 % 0 no rounds yet no" in rows
    assert rows[-2:] == [
        "1 of 2 timing trials were disturbed, the last by: load 9",
        "this machine does not resolve 3 %, across 2 fork servers; the test took 61 s",
    ]
    selftest._show(Console(file=out, width=120), GOOD, MACHINE.filter(pl.col("disturbed") == ""), 1.0)
    assert "this machine resolves 3 %, across 1 fork" in out.getvalue()
    assert out.getvalue().count("disturbed") == 1


@pytest.mark.slow
def test_doubled_work_is_resolved_anywhere_and_no_delay_is_called_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which small delays a machine resolves, and how far placebos lie apart, is the self-test's to say."""
    monkeypatch.setattr(selftest, "DELAYS", (10, 100))
    asked = selftest.command

    def here(runs: Path, budget_s: float) -> SweepCommand:
        return replace(asked(runs, budget_s), cluster=ClusterConfig(executor="inprocess"))

    monkeypatch.setattr(selftest, "command", here)
    out = StringIO()
    selftest.run(Console(file=out, width=100), budget_s=5.0)
    text = out.getvalue()
    rows = {
        words[0]: line
        for line in text.splitlines()
        if (words := line.split()) and words[0] in ("placebo", "10", "100")
    }
    assert "slower" in rows["100"] and "yes" in rows["100"], text
    assert not [row for injected, row in rows.items() if injected != "placebo" and "faster" in row], text
    assert rows.keys() == {"placebo", "10", "100"}, text
