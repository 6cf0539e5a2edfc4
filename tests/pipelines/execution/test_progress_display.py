"""What a person sees: true counts, a line per kind of trouble, and no control characters in log files."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.config.types import DesignConfig
from pipelines.execution import progress_display
from pipelines.plan import plan
from pipelines.store.records import Event, Kind, Manifest, Outcome, SweepFolder, TrialSpec, write_status
from workloads.api import Device


@pytest.fixture
def manifest(command) -> Manifest:
    return plan.make_plan(command(DesignConfig("one_at_a_time", toggles=["work", "never"])), Device())


def shown(manifest: Manifest, events: list[Event], *, terminal: bool = False) -> str:
    out = StringIO()
    console = Console(file=out, width=100, force_terminal=terminal)
    with progress_display.live(console, manifest, total=20) as progress:
        for event in events:
            progress(event)
    return out.getvalue()


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


def test_the_plan_says_what_is_measured_and_what_is_there_already(manifest: Manifest) -> None:
    out = StringIO()
    progress_display.show_plan(Console(file=out, width=100), manifest, {"p000": 1}, "runs/toy")
    text = out.getvalue()
    assert f"{len(manifest.arms)} arms, {len(manifest.effects)} effects" in text
    assert "1 of 2 rounds are there already" in text


def test_the_first_failure_of_an_arm_is_shown_once_with_its_reason(manifest: Manifest) -> None:
    failures = [
        event(manifest, 1, Outcome.FAILED, "RuntimeError: broken\nmore", number) for number in range(3)
    ]
    text = shown(manifest, failures)
    assert text.count("work=single: failed: RuntimeError: broken") == 1
    assert "more" not in text


def test_a_log_file_gets_plain_lines(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_display, "LOG_EVERY_S", 0.0)
    text = shown(manifest, [event(manifest, 0, Outcome.OK), event(manifest, 1, Outcome.OK)])
    assert "2 of 20 trials, round 1: work=single" in text
    assert "\x1b" not in text


def test_the_last_line_of_a_log_file_has_the_whole_count(manifest: Manifest) -> None:
    """Lines come at most every ten seconds, and the last one may be far from the end."""
    text = shown(manifest, [event(manifest, 0, Outcome.OK) for _ in range(3)])
    assert text.strip().splitlines() == ["3 of 20 trials"]
    assert "3 of 20 trials\n" not in shown(
        manifest, [event(manifest, 0, Outcome.OK) for _ in range(3)], terminal=True
    )


def test_trials_that_will_never_come_leave_the_count(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_display, "LOG_EVERY_S", 0.0)
    missing = event(manifest, 1, Outcome.UNSUPPORTED, "work=single: needs a GPU", None)
    text = shown(manifest, [missing, event(manifest, 0, Outcome.OK)])
    assert "work=single: unsupported: needs a GPU\n" in text
    assert "2 of 18 trials" in text  # without the two rounds of the unsupported arm


def test_the_stage_of_the_newest_trial_is_read_when_drawn(manifest: Manifest, tmp_path: Path) -> None:
    folder, arm = SweepFolder(tmp_path), manifest.arms[0]
    stage = progress_display.Stage(folder, arm)
    assert stage.__rich__() == "baseline: starting"
    for attempt, doing in ((0, "saving"), (1, "warming up")):
        spec = TrialSpec(
            sweep="toy", workload="toy", config={}, arm=arm, kind=Kind.TIMING, pack="p000", round=0,
            attempt=attempt,
            measure=manifest.sweep.measure, code="", cache_dir="",
        )  # fmt: skip
        folder.trial_dir(spec).mkdir(parents=True)
        write_status(folder.trial_dir(spec), doing)
    assert stage.__rich__() == "baseline: warming up"


def test_the_count_of_trials_ahead_covers_rounds_and_support(manifest: Manifest) -> None:
    arms = len(manifest.arms)
    assert progress_display.trials_ahead(manifest, {"p000": 2}) == 2 * arms + 2 * arms
    assert progress_display.trials_ahead(manifest, {"p000": 0}) == 0
