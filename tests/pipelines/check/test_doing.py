"""What a person who waits for a check sees: how far it is, how long it took, and how long it will."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipelines.check import check as checking
from pipelines.check.check import Doing


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands until a test moves it."""
    clock = SimpleNamespace(s=0.0)
    monkeypatch.setattr(checking, "time", SimpleNamespace(monotonic=lambda: clock.s))
    return clock


def doing(out: StringIO, checked: SimpleNamespace, *, terminal: bool = False) -> Doing:
    return Doing(Console(file=out, width=100, force_terminal=terminal), checked)  # type: ignore[arg-type]


def test_it_says_which_trial_how_long_it_took_and_how_long_it_will(now: SimpleNamespace) -> None:
    checked = SimpleNamespace(trials=0, trials_ahead=20)
    shown = doing(StringIO(), checked, terminal=True)
    shown("amp=bf16: evidence trial")
    assert str(shown) == "trial 1 of about 20, 0 s: amp=bf16: evidence trial"
    checked.trials, now.s = 5, 30.0
    assert str(shown) == "trial 6 of about 20, 30 s, about 90 s left: amp=bf16: evidence trial"


def test_more_trials_than_foreseen_are_counted(now: SimpleNamespace) -> None:
    assert str(doing(StringIO(), SimpleNamespace(trials=24, trials_ahead=20))).startswith(
        "trial 25 of about 25"
    )


def test_a_log_gets_a_line_at_most_every_ten_seconds(now: SimpleNamespace) -> None:
    out, checked = StringIO(), SimpleNamespace(trials=0, trials_ahead=20)
    shown = doing(out, checked)
    for trial in range(10):
        checked.trials, now.s = trial, trial * 4.0
        shown("a trial")
    assert [line.split(",")[0] for line in out.getvalue().splitlines()] == [
        "trial 4 of about 20",
        "trial 7 of about 20",
        "trial 10 of about 20",
    ]
