"""The self-test: placebos and known delays, measured as any sweep is, and what counts as resolved."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.analysis.judge import EffectResult
from pipelines.cli import main
from pipelines.commands import selftest
from pipelines.commands.selftest import Resolution, passes
from pipelines.plan import plan
from pipelines.statistics.verdicts import Verdict
from pipelines.store.records import Effect
from workloads.api import Device


def resolution(
    delay: int, verdict: Verdict, low: float = 0.5, high: float = 2.0, figure: str = "wall time"
) -> Resolution:
    effect = Effect(id="e", design="one_at_a_time", toggle="delay", level=str(delay), pairs=(("a", "b"),))
    return Resolution(figure, delay, EffectResult(effect, "a", "b", verdict, ratio=1.0, low=low, high=high))


GOOD = [
    resolution(0, Verdict.UNDECIDED),
    resolution(1, Verdict.UNDECIDED),
    resolution(3, Verdict.SLOWER),
    resolution(10, Verdict.SLOWER),
]


def test_a_machine_that_sees_three_per_cent_and_nothing_in_placebos_passes() -> None:
    assert passes(GOOD)


@pytest.mark.parametrize(
    ("place", "verdict"),
    [
        (0, Verdict.SLOWER),
        (0, Verdict.FASTER),
        (2, Verdict.UNDECIDED),
        (2, Verdict.FASTER),
        (3, Verdict.NO_DIFFERENCE),
    ],
)
def test_a_false_word_or_a_missed_delay_fails(place: int, verdict: Verdict) -> None:
    found = list(GOOD)
    found[place] = resolution(found[place].delay, verdict)
    assert not passes(found)


def test_cpu_time_alone_is_not_enough_and_nothing_measured_fails() -> None:
    assert not passes([resolution(delay, Verdict.SLOWER, figure="CPU time") for delay in (3, 10)])
    assert not passes([])


def test_an_interval_that_misses_the_injected_delay_is_seen() -> None:
    assert resolution(3, Verdict.SLOWER, 1.02, 1.04).covered
    assert not resolution(3, Verdict.SLOWER, 1.04, 1.06).covered


def test_the_sweep_has_each_delay_against_the_undelayed_arm_and_placebos(tmp_path: Path) -> None:
    manifest = plan.make_plan(selftest.command(tmp_path, 60.0), Device())
    shown = [(effect.design, effect.toggle, effect.level) for effect in manifest.effects]
    assert shown == [("one_at_a_time", "delay", level) for level in ("1", "3", "10")] + [
        ("placebo", "placebo", number) for number in "12"
    ]
    assert [arm.placebo for arm in manifest.arms] == [0, 0, 0, 0, 1, 2]
    assert len(manifest.packs) == 1 and len(manifest.packs[0].arms) == 6


@pytest.mark.parametrize("budget", ["0", "-3", "inf", "soon"])
def test_a_budget_that_is_no_time_is_refused(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["selftest", "--budget", budget])
    assert ended.value.code == 2
    assert "--budget" in capsys.readouterr().err


@pytest.mark.slow
def test_doubled_work_is_resolved_anywhere_and_no_delay_is_called_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which small delays a machine resolves, and how far placebos lie apart, is the self-test's to say."""
    monkeypatch.setattr(selftest, "DELAYS", (10, 100))
    out = StringIO()
    selftest.run(Console(file=out, width=100), budget_s=20.0)
    text = out.getvalue()
    rows = {
        tuple(line.split()[0:3:2]): line
        for line in text.splitlines()
        if line.strip().startswith(("wall time", "CPU time"))
    }
    assert "slower" in rows["CPU", "100"] and "yes" in rows["CPU", "100"], text
    slowed = [row for (time, injected), row in rows.items() if time == "CPU" and injected != "placebo"]
    assert not [row for row in slowed if "faster" in row], text
    assert {injected for _, injected in rows} == {"placebo", "10", "100"}, text
