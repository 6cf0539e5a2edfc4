"""The report's validation as a command: two arms side by side, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError, UnsupportedHere
from perfsweep.workloads.latentwire import scores, validate
from perfsweep.workloads.latentwire.scores import Score


@pytest.mark.slow
def test_arms_that_agree_pass(capsys) -> None:
    small = ["--steps", "2", "--examples", "4"]
    assert validate.main(["--arm", "k_loss=batched,passes=merged", *small]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "verdict: the same"
    assert lines[1].startswith("2 steps: loss")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "fastest"], "--arm fastest is neither a preset"),
        (["--arm", "speed=on"], "toggle speed is unknown"),
        (["--preset", "huge"], "workload.preset=huge cannot be used"),
        (["--steps", "0"], "--steps 0 cannot be used: it must be at least 1"),
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


def side(loss: float = 2.0, gradient: float = 1.0, f1: tuple[float, ...] = (0.0, 1.0) * 20) -> validate.Side:
    mean = scores.bootstrap(f1)
    score = Score(1, "latent", mean, mean, f1, 1.0, 0.5, 0.5, 9.0, 0.1)
    return validate.Side((4.0, loss), np.array([0.0, gradient]), 3.0, [score])


@pytest.mark.parametrize(
    ("arm", "rounded", "same"),
    [
        (side(), False, True),
        (side(2.0019), False, True),
        (side(1.997), False, False),
        (side(1.97), True, True),
        (side(2.05), True, False),
        (side(gradient=1 + 9e-6), False, True),
        (side(gradient=1 - 2e-5), False, False),
        (side(gradient=1.019), True, True),
        (side(gradient=0.97), True, False),
        (side(f1=(0.0,) * 40), False, False),
        (side(f1=(1.0,) * 40), False, True),
    ],
)
def test_an_arm_is_the_same_within_rounding_and_if_no_answers_are_lost(
    arm, rounded: bool, same: bool
) -> None:
    lines, found = validate.compare(side(), arm, rounded)
    assert found == same
    assert lines[-1] == f"verdict: {'the same' if same else 'different'}"


def test_the_report_says_what_was_compared() -> None:
    lines, _ = validate.compare(side(), side(loss=2.001, gradient=1.5), False)
    assert lines[0] == "single step: gradients differ by 5.00e-01 (bound 1e-05)"
    assert lines[1] == (
        "2 steps: loss 4.0000 to 2.0000, and 2.0010; largest difference 5.00e-04 (bound 1e-03)"
    )
    assert lines[2] == "memory kept for the backward pass: 3.0 and 3.0 MiB"
    assert lines[3].startswith("model 1 latent      : EM ") and lines[4].startswith("40 examples resolve")


def test_levels_are_baselines_but_for_what_is_chosen_in_windows_that_hold_their_pieces() -> None:
    levels = validate.levels_of({"amp": "bf16", "micro_batch": "16"}, 4)
    assert (levels["amp"], levels["micro_batch"], levels["effective_batch"]) == ("bf16", 4, 4)
    assert validate.levels_of({"micro_batch": "auto"}, 4)["micro_batch"] == "auto"
    assert validate.levels_of({"micro_batch": 2}, 4)["micro_batch"] == 2
    with pytest.raises(ConfigError, match=r"toggles\.amp=fp9 is not a level"):
        validate.levels_of({"amp": "fp9"}, 4)


@pytest.mark.parametrize(
    ("arm", "loss", "status"),
    [("naive", 2.0, 0), ("amp=bf16", 2.03, 0), ("lm_dtype=bf16", 2.03, 0), ("k_loss=batched", 2.03, 1)],
)
def test_narrow_numbers_may_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arm: str, loss: float, status: int
) -> None:
    sides = iter((side(), side(loss)))
    seen: list[tuple] = []
    monkeypatch.setattr(validate, "train", lambda *given: seen.append(given) or next(sides))
    assert validate.main(["--arm", arm, "--steps", "7", "--batch", "16", "--json"]) == status
    config, levels, steps, _ = seen[1]
    assert (config.data_n, config.held_out, steps, levels["effective_batch"]) == (64, 100, 7, 16)
    assert all(level == validate.levels_of({}, 16)[name] for name, level in seen[0][1].items())
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said == {"naive": [4.0, 2.0], "arm": [4.0, loss]}


def test_a_level_that_this_machine_cannot_run_is_named() -> None:
    with pytest.raises(UnsupportedHere, match=r"^--arm has attn=flash: .*; choose another arm or machine$"):
        validate._refuse_unsupported(validate.levels_of({"attn": "flash"}, 4), Device())
