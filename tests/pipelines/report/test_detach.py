"""What a person who leaves reads: what goes on without them, and what does not."""

from __future__ import annotations

import io
import shlex
from types import SimpleNamespace

import pytest
from rich.console import Console

from perfsweep.pipelines.report import progress_display as detach_
from perfsweep.pipelines.report.progress_display import detach


@pytest.mark.parametrize(
    ("left", "sentence"),
    [
        (0, "detached: the jobs go on. Come back"),
        (1, "submitted jobs go on, but 1 pack was not submitted yet and will not be until the same sweep"),
        (7, "submitted jobs go on, but 7 packs were not submitted yet and will not be until the same sweep"),
    ],
)
def test_packs_that_were_never_submitted_do_not_go_on(left: int, sentence: str) -> None:
    text = io.StringIO()
    detach(Console(file=text, width=300), "runs/toy", lambda: 0, left)
    assert sentence in " ".join(text.getvalue().split())
    assert "perfsweep wait runs/toy" in text.getvalue()


def test_a_command_to_come_back_with_is_one_line_however_narrow_the_terminal_is() -> None:
    text, folder = io.StringIO(), "/scratch/somebody/a long name/" + "runs/" * 12
    detach(Console(file=text, width=60), folder, lambda: 0)
    typed = [shlex.split(line) for line in text.getvalue().splitlines() if "perfsweep status" in line]
    assert typed == [["perfsweep", "status", folder]]


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


@pytest.mark.parametrize(
    ("answer", "cancels"), [("y", True), (" YES ", True), ("", False), ("n", False), ("yy", False)]
)
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
