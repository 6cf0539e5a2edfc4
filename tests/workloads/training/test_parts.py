"""What a training may be made of, and the one sentence about what it may not."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.parts import Parts


def loss(*_: Any) -> Any:
    return None


MODEL, ROWS = nn.Linear(1, 1), [1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"data": ROWS}, "loss is missing"),
        ({"loss": loss}, "one of data and loader must be named, and not both"),
        ({"data": ROWS, "loader": list, "loss": loss}, "one of data and loader must be named, and not both"),
        ({"loader": list, "sampler": ROWS, "loss": loss}, "sampler names rows of data"),
        ({"loader": list, "collate": list, "loss": loss}, "collate puts rows of data together"),
        ({"data": ROWS, "loss": loss, "accumulate": 0}, "accumulate=0 must be a whole number from 1"),
        ({"data": ROWS, "loss": loss, "accumulate": 1.5}, "accumulate=1.5 must be a whole number from 1"),
        ({"data": ROWS, "loss": loss, "clip_norm": 1.0, "clip_value": 1.0}, "exclude one another; name one"),
        (
            {"data": ROWS, "loss": loss, "clip_norm": 0.0},
            r"clip_norm and clip_value must be above 0, not \[0.0\]",
        ),
        (
            {"data": ROWS, "loss": loss, "clip_norm": 1.0, "groups": [{"params": [1], "clip_norm": 1.0}]},
            "clip_norm of groups exclude one another",
        ),
        ({"data": ROWS, "loss": loss, "groups": [{"params": [1], "clip_norm": -2.0}]}, r"not \[-2.0"),
        ({"data": ROWS, "loss": loss, "groups": [{"lr": 1.0}]}, "a group has no params"),
        ({"data": ROWS, "loss": loss, "clip_value": -1.0}, r"must be above 0, not \[-1.0\]"),
        (
            {"data": ROWS, "loss": loss, "schedule": list, "schedule_every": "day"},
            "'day' must be one of iteration",
        ),
        (
            {"data": ROWS, "loss": loss, "schedule_every": "epoch"},
            "schedule_every says when, and schedule what",
        ),
        (
            {"data": ROWS, "loss": loss, "schedule": list, "schedule_every": "evaluation", "evaluate": loss},
            "schedule_every='evaluation' needs evaluate and evaluate_every",
        ),
        (
            {"data": ROWS, "loss": loss, "held_out": ROWS, "evaluate_batch": -1},
            "evaluate_batch=-1 must be a number",
        ),
        ({"data": ROWS, "loss": loss, "evaluate_batch": 1}, "evaluate_batch needs held_out"),
    ],
)
def test_what_cannot_be_trained_is_said(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^build.. returns Parts that cannot be trained: .*{said}"):
        Parts(MODEL, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"data": ROWS, "sampler": ROWS, "collate": list, "accumulate": 3, "clip_norm": 0.5},
        {"loader": list, "collate": list, "held_out": ROWS, "evaluate_batch": 2},
        {"data": ROWS, "schedule": list, "schedule_every": "epoch", "clip_value": 0.1},
        {
            "data": ROWS,
            "schedule": list,
            "schedule_every": "evaluation",
            "evaluate": loss,
            "evaluate_every": 2,
        },
    ],
)
def test_what_goes_together_is_taken(fields: dict[str, Any]) -> None:
    parts = Parts(MODEL, loss=loss, **fields)
    assert all(getattr(parts, name) == value for name, value in fields.items())
