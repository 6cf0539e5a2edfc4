"""What people see of a sweep that runs: true counts, a line per kind of trouble, what goes on alone."""

from __future__ import annotations

import dataclasses
import io
import re
import time
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.power import Forecast
from perfsweep.pipelines.plan.tally import Ahead, trials_ahead
from perfsweep.pipelines.report import progress_display
from perfsweep.pipelines.report import progress_display as detach_
from perfsweep.pipelines.report.progress_display import detach
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect, Event, Kind, Manifest, Outcome, Refused, SweepFolder
from perfsweep.workloads.api import Device


@pytest.fixture
def manifest(command) -> Manifest:
    return plan.make_plan(command(DesignConfig("one_at_a_time", toggles=["work", "never"])), Device())


def shown(manifest: Manifest, events: list[Event], *, terminal: bool = False, width: int = 100) -> str:
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    with progress_display.live(console, manifest, ahead(manifest)) as progress:
        for event in events:
            progress(event)
    return out.getvalue()


def ahead(manifest: Manifest, rounds: int = 5) -> Ahead:
    """All arms in `rounds` rounds of one pack, each with a counting and an evidence trial."""
    per_arm = {Kind.TIMING: rounds, Kind.COUNTING: 1, Kind.EVIDENCE: 1}
    return Counter({(arm.id, kind): number for arm in manifest.arms for kind, number in per_arm.items()})


def event(manifest: Manifest, arm: int, outcome: Outcome, reason: str = "", number: int | None = 0) -> Event:
    kind = Kind.TIMING if number is not None else Kind.EVIDENCE
    return Event(
        time=time.time(),
        arm=manifest.arms[arm].id,
        kind=kind,
        round=number,
        outcome=outcome,
        seconds=1.0,
        reason=reason,
    )


def test_a_plan_has_its_arms_its_packs_what_is_left_out_and_its_folder_on_a_line(manifest: Manifest) -> None:
    joint = manifest.effects[0].model_copy(update={"toggle": "a = b", "contrast": {"x": 1.0, "y": -1.0}})
    alone = joint.model_copy(update={"toggle": "a"})
    refused = Refused(design="arms", toggle="never", level="on", reason="needs [a GPU]")
    measure = dataclasses.replace(manifest.sweep.measure, precision=0.01, budget_s=90.0)
    sweep = manifest.sweep.model_copy(update={"measure": measure})
    own = {"effects": (*manifest.effects, joint, alone), "refused": (refused,), "sweep": sweep}
    out, folder = StringIO(), "runs/" + "a/" * 60
    changed = manifest.model_copy(update={**own, "packs": manifest.packs * 2})
    progress_display.show_plan(Console(file=out, width=100, markup=False), changed, 0, folder)
    lines, text = out.getvalue().splitlines(), " ".join(out.getvalue().split())
    designs = f"{len(manifest.effects) + 2} by one_at_a_time"
    assert f"toy: workload {sweep.workload}, {len(manifest.arms)} arms, " in text
    assert f"{len(changed.effects)} effects ({designs})" in text
    assert f"2 packs of {measure.rounds} rounds, in each of them all arms take turns" in text
    assert (
        f"; up to {measure.rounds_planned} rounds, each arm until its interval is within +-1.0% or"
        " 90 s are spent" in text
    )
    assert [line for line in lines if "told together" in line] == [
        "told together only, never one by one: a = b"
    ]
    assert "left out: never=on: needs [a GPU]" in lines
    assert f"records: {folder}" in lines and "there already" not in text
    plain = StringIO()
    progress_display.show_plan(Console(file=plain, width=200), manifest, 0, "runs/toy")
    assert "1 pack of 2 rounds, in each of them all arms take turns\n" in plain.getvalue()
    assert "told together" not in plain.getvalue() and "until" not in plain.getvalue()


def test_a_dry_run_has_a_line_for_each_effect_with_its_base(manifest: Manifest) -> None:
    effect = manifest.effects[0]
    pairs = effect.model_copy(
        update={"pairs": effect.pairs * 3, "toggle": "work of all", "also": ("gc", "amp")}
    )
    contrast = effect.model_copy(update={"contrast": {"x": 1.0, "y": -1.0}, "level": "x"})
    out = StringIO()
    changed = manifest.model_copy(update={"effects": (effect, pairs, contrast)})
    progress_display.show_arms(Console(file=out, width=40), changed)
    title, headings, *rows = [re.split(r"  +", line) for line in out.getvalue().splitlines()]
    assert (title, headings) == (
        ["effects to be measured"],
        ["design", "toggle", "level", "base", "with it move"],
    )
    base = manifest.arm(effect.pairs[0][1]).label
    assert rows == [
        [effect.design, effect.toggle, effect.level, base],
        [effect.design, "work of all", effect.level, "3 pairs", "gc, amp"],
        [effect.design, effect.toggle, "x", "a contrast of 2 arms"],
    ]


def test_the_first_failure_of_an_arm_is_shown_once_with_its_reason(manifest: Manifest) -> None:
    failures = [
        event(manifest, 1, Outcome.FAILED, "RuntimeError: broken\nmore", number) for number in range(2)
    ]
    text = shown(manifest, failures)
    assert text.count("work=single: failed: RuntimeError: broken") == 1
    assert "\nmore" not in text and " more" not in text
    assert "work=single: not started again; 5 trials fewer\n" in text, "it is retired"


def test_a_log_file_gets_a_line_at_most_every_ten_seconds(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial every three seconds: a line after 12, 24 and 36 of them, and the last count."""
    now = 0.0
    monkeypatch.setattr(progress_display, "time", SimpleNamespace(monotonic=lambda: now))
    out = StringIO()
    trials = [(arm, number) for number in range(5) for arm in range(3)]
    with progress_display.live(Console(file=out, width=100), manifest, ahead(manifest)) as progress:
        for arm, number in trials[:13]:
            now += 3.0
            progress(event(manifest, arm, Outcome.OK, number=number))
    assert [int(line.split()[0]) for line in out.getvalue().splitlines()] == [4, 8, 12, 13]


def lines_of_a_log(
    manifest: Manifest, trials: list[tuple[Kind, float]], monkeypatch: pytest.MonkeyPatch, at_once: int = 1
) -> list[str]:
    """A line for each of these trials, of so many seconds, that end one after the other."""
    monkeypatch.setattr(progress_display, "LOG_EVERY_S", -1.0)
    monkeypatch.setattr(progress_display, "time", SimpleNamespace(monotonic=lambda: 0.0))
    out, now = StringIO(), 1000.0
    with progress_display.live(Console(file=out, width=100), manifest, ahead(manifest)) as progress:
        for number, (kind, seconds) in enumerate(trials):
            now += seconds / at_once
            own = {"kind": kind, "seconds": seconds, "time": now, "round": None}
            progress(event(manifest, number % 3, Outcome.OK).model_copy(update=own))
    return out.getvalue().splitlines()


SUPPORT = [
    (kind, seconds) for kind, seconds in ((Kind.COUNTING, 2.0), (Kind.EVIDENCE, 1.0)) for _ in range(3)
]


def test_a_trial_to_come_is_taken_to_last_as_long_as_others_of_its_kind(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three arms in five rounds: 12 trials of 10 seconds to come, after counting ones of 2."""
    lines = lines_of_a_log(manifest, [*SUPPORT, *3 * [(Kind.TIMING, 10.0)]], monkeypatch)
    assert not any("about" in line for line in lines[:6]), "what a round takes is not known yet"
    assert lines[8].endswith("about 0:02:00 left")


def test_an_adaptive_sweep_is_never_said_to_take_longer_than_its_budget(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the first trials took 90 seconds, since it compiled; all rounds together may take 135."""
    measure = dataclasses.replace(manifest.sweep.measure, precision=0.01, budget_s=135.0)
    limited = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update={"measure": measure})})
    trials = [*SUPPORT[:2], (Kind.COUNTING, 90.0), *SUPPORT[3:], *3 * [(Kind.TIMING, 10.0)]]
    lines = lines_of_a_log(limited, trials, monkeypatch)
    assert lines[5].endswith("about 0:02:15 left") and lines[8].endswith("about 0:01:45 left")


def test_rounds_that_are_repeated_make_the_count_longer_and_are_named_once(manifest: Manifest) -> None:
    rounds = [event(manifest, 0, Outcome.OK, number=number) for number in range(5)]
    text = shown(manifest, [*rounds, *rounds[:3]])
    measure = dataclasses.replace(manifest.sweep.measure, precision=0.01)
    narrow = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update={"measure": measure})})
    assert "planned: rounds of arms whose intervals are too wide\n" in shown(narrow, [*rounds, rounds[0]])
    assert text.count("more trials than planned: rounds that something disturbed, measured again\n") == 1
    planned = ahead(manifest).total()
    again = "3 more: rounds that something disturbed, measured again"
    assert f"8 of {planned + 3} trials ({planned} planned, {again})" in " ".join(text.split())


def test_a_narrow_terminal_has_counts_and_the_time_that_is_left(manifest: Manifest) -> None:
    width = 60
    support = [
        event(manifest, 1, Outcome.OK).model_copy(update={"kind": kind, "round": None})
        for kind in (Kind.COUNTING, Kind.EVIDENCE)
    ]
    text = shown(manifest, [*support, event(manifest, 1, Outcome.OK)], terminal=True, width=width)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", text).split("\n")
    last = [line for line in lines if "trials," in line][-1]
    assert len(last) <= width
    total = ahead(manifest).total()
    assert re.search(rf"^round 1.*3/{total} trials, \d:\d\d:\d\d and \d:\d\d:\d\d left", last), last


def row(name: str, ratio: float) -> EffectResult:
    effect = Effect(id=name, design="one_at_a_time", toggle=name, level="on", pairs=(("a", "b"),))
    bounds = {"ratio": ratio, "low": ratio - 0.02, "high": ratio + 0.02}
    return EffectResult(effect, name, "naive", Verdict.FASTER, **bounds)


GROUP = "RESULTS NOT CHECKED"
"""What the two effects have in common, where there are verdicts: nothing compared their results."""


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is known is a table of two effects; rounds after which it was asked for."""
    asked: list[int] = []

    def compared(_: object, rounds: int) -> progress_display.SoFar:
        asked.append(rounds)
        table = progress_display.table_after(rounds, [row("amp", 0.75), row("gc", 0.98)])
        return progress_display.SoFar(rounds, table, Forecast(40.0, 0.00995))

    monkeypatch.setattr(progress_display.RoundsSoFar, "_compared", compared)
    return asked


def measured(
    manifest: Manifest, folder: Path, rounds: int, *, terminal: bool = False
) -> Iterator[tuple[int, str]]:
    """The round of each trial of a sweep, and what was printed after it."""
    out = StringIO()
    console = Console(file=out, width=100, force_terminal=terminal, color_system=None)
    trials = ahead(manifest, rounds)
    with progress_display.live(console, manifest, trials, SweepFolder(folder)) as progress:
        for number in range(rounds):
            for arm in range(3):
                progress(event(manifest, arm, Outcome.OK, number=number))
                yield number, out.getvalue()
    yield rounds, out.getvalue()


def test_after_two_rounds_a_line_says_how_many_seconds_are_left_and_counts_them_down(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: list[int]
) -> None:
    now = 100.0
    monkeypatch.setattr(progress_display, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(progress_display, "LOG_EVERY_S", -1.0)
    texts = []
    for _, text in measured(manifest, tmp_path, 3):
        texts.append(text)
        now += 5.0
    lines = [line for line in texts[-1].splitlines() if " trials, round " in line]
    assert not any("to +-" in line for line in lines[:5])
    assert lines[5].endswith(", about 40 s to +-1.0%") and lines[7].endswith(", about 30 s to +-1.0%")


def test_the_first_table_comes_with_the_second_round_and_has_verdicts_from_the_sixth_on(
    manifest: Manifest, tmp_path: Path, known: list[int]
) -> None:
    """In a log file, where each stays, there are few."""
    texts = dict(measured(manifest, tmp_path, 14))
    assert "so far" not in texts[0] and texts[1].count("so far") == texts[4].count("so far") == 1
    assert "so far, 2 rounds: no verdicts yet" in texts[4]
    assert "amp=on" in texts[4] and "1.33x faster" in texts[4] and GROUP not in texts[4]
    assert texts[5].count("so far") == 2 and texts[5].count(GROUP) == 1
    assert re.findall(r"so far, (\d+) rounds", texts[14]) == ["2", "6", "12"]


def test_a_terminal_has_the_newest_table_below_the_line_and_none_of_them_stays(
    manifest: Manifest, tmp_path: Path, known: list[int]
) -> None:
    *_, (_, during), (_, after) = measured(manifest, tmp_path, 6, terminal=True)
    assert "so far, 6 rounds" in during and GROUP in during
    left = after[len(during) :]
    assert "18/24 trials" in left and "so far" not in left


def left(monkeypatch: pytest.MonkeyPatch, presses: bool, answer: object, terminal: bool = True) -> str:
    """What somebody reads who leaves on a terminal, and presses Ctrl-C again or does not."""
    text = io.StringIO()
    console = Console(file=text, width=300, force_terminal=True, color_system=None)

    def slept(seconds: float) -> None:
        if presses:
            raise KeyboardInterrupt

    def asked(prompt: str, **own: object) -> object:
        text.write(prompt)
        return answer() if callable(answer) else answer

    monkeypatch.setattr(detach_.time, "sleep", slept)
    monkeypatch.setattr(console, "input", asked)
    monkeypatch.setattr(detach_.sys, "stdin", SimpleNamespace(isatty=lambda: terminal))
    detach(console, "runs/[toy]", lambda: 7)
    return text.getvalue()


@pytest.mark.parametrize(("answer", "cancels"), [(" YES ", True), ("", False), ("yy", False)])
def test_a_second_ctrl_c_offers_to_cancel_and_only_yes_does(
    monkeypatch: pytest.MonkeyPatch, answer: str, cancels: bool
) -> None:
    said = left(monkeypatch, True, answer)
    assert "Ctrl-C again within 3 seconds offers to cancel them." in said
    assert "cancel all jobs of this sweep? [y/N] " in said
    assert ("cancelled 7 jobs; finished rounds are kept in runs/[toy]" in said) is cancels


def test_who_does_not_answer_cancels_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def again() -> None:
        raise KeyboardInterrupt

    assert "cancelled" not in left(monkeypatch, True, again)
    assert "cancel all jobs" not in left(monkeypatch, False, "y")
    assert "Ctrl-C again" not in left(monkeypatch, True, "y", terminal=False), "nobody can answer"


def test_trials_that_will_never_come_leave_the_count_and_are_named(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "LOG_EVERY_S", 0.0)
    planned = ahead(manifest).total()
    missing = event(manifest, 1, Outcome.UNSUPPORTED, "work=single: needs a GPU", None)
    text = shown(manifest, [missing, event(manifest, 0, Outcome.OK)])
    assert "work=single: unsupported: needs a GPU; 6 trials fewer\n" in text
    assert f"2 of {planned - 6} trials ({planned} planned, 6 fewer: arms that ended early)" in text


def test_the_count_of_trials_ahead_covers_rounds_and_support(manifest: Manifest) -> None:
    arms = len(manifest.arms)
    assert trials_ahead(manifest, {"p000": 2}).total() == 2 * arms + 2 * arms
    assert trials_ahead(manifest, {"p000": 1}).total() == arms, "support is there already"
    assert trials_ahead(manifest, {"p000": 0}).total() == 0
