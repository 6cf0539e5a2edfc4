"""The report's validation as a command: two arms side by side, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from workloads.latentwire import validate
from workloads.latentwire.maths.student import Student

SMALL = ["--steps", "3", "--examples", "4"]


@pytest.mark.slow
def test_arms_that_agree_pass_and_an_arm_that_learns_other_tokens_does_not(capsys, monkeypatch) -> None:
    assert validate.main(["--arm", "k_loss=batched,passes=merged", *SMALL]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "verdict: the same"
    assert lines[1].startswith("3 steps: loss")
    merged = Student._merged
    monkeypatch.setattr(
        Student, "_merged", lambda self, start, answer: merged(self, start, torch.roll(answer, 1, dims=1))
    )
    assert validate.main(["--arm", "k_loss=batched,passes=merged", *SMALL]) == 1
    assert capsys.readouterr().out.endswith("verdict: different\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "fastest"], "--arm fastest is neither a preset"),
        (["--arm", "speed=on"], "toggle speed is unknown"),
        (["--preset", "huge"], "workload.preset=huge cannot be used"),
        (["--steps", "0"], "--steps 0 cannot be used: it must be at least 1"),
        (["--batch", "-1"], "--batch -1 cannot be used"),
        (["--examples", "0"], "--examples 0 cannot be used"),
    ],
)
def test_what_cannot_be_validated_is_said_in_a_sentence(capsys, arguments, message) -> None:
    assert validate.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_what_is_kept_for_the_backward_pass_is_counted_once_for_each_memory() -> None:
    x = torch.ones(8, requires_grad=True)
    with validate._SavedPeak() as _:
        pass
    held = validate._SavedPeak()
    with held:
        y = x.exp()  # keeps its result
        (y * y).sum()  # keeps it twice more
    y.exp()
    assert held.bytes == 8 * 4
