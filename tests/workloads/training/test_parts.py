"""What a training may be made of, and the one sentence about what it may not."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import Train, squared_error
from torch import nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.parts import Parts


def loss(*_: Any) -> Any:
    return None


MODEL, ROWS = nn.Linear(1, 1), [1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"loss": Parts.loss}, "loss is missing"),
        ({"data": None}, "one of data and loader must be named, and not both"),
        ({"data": None, "loader": list, "sampler": ROWS}, "sampler names rows of data"),
        ({"data": None, "loader": list, "collate": list}, "collate puts rows of data together"),
        ({"accumulate": 0}, "accumulate=0 must be a whole number from 1"),
        ({"clip_norm": 1.0, "clip_value": 1.0}, "exclude one another; name one"),
        (
            {"clip_norm": 1.0, "groups": [{"params": [1], "clip_norm": 1.0}]},
            "clip_norm of groups exclude one another",
        ),
        ({"groups": [{"params": [1], "clip_norm": -2.0}]}, r"must be above 0, not \[-2.0"),
        ({"groups": [{"lr": 1.0}]}, "a group has no params"),
        ({"clip_value": -1.0}, r"must be above 0, not \[-1.0\]"),
        ({"schedule": list, "schedule_every": "day"}, "'day' must be one of iteration"),
        ({"schedule_every": "epoch"}, "schedule_every says when, and schedule what"),
        ({"schedule": list, "schedule_every": "evaluation", "evaluate": loss}, "evaluate and evaluate_every"),
        ({"held_out": ROWS, "evaluate_batch": -1}, "evaluate_batch=-1 must be a number"),
        ({"evaluate_batch": 1}, "evaluate_batch needs held_out"),
    ],
)
def test_what_cannot_be_trained_is_said(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^build.. returns Parts that cannot be trained: .*{said}"):
        Parts(MODEL, **{"data": ROWS, "loss": loss, **fields})


def test_a_term_that_is_called_as_the_total_is_refused(train: Train) -> None:
    def total(model: Any, x: Any, y: Any) -> dict[str, Any]:
        return {"loss": squared_error(model, x, y)}

    with pytest.raises(ConfigError, match="the loss has a term called loss, and its terms are added up"):
        train({"loss": total}, steps=1)


def test_a_loss_in_terms_is_their_sum_and_each_is_the_mean_over_all_rows(train: Train) -> None:
    def halves(model: Any, x: Any, y: Any) -> dict[str, Any]:
        return {"first": squared_error(model, x, y) * 0.25, "rest": squared_error(model, x, y) * 0.75}

    whole, terms = train({}, steps=2), train({"loss": halves}, steps=2, micro_batch=10)
    row, plain = terms._losses.take(), whole._losses.take()
    assert row is not None and plain is not None and row.terms.keys() == {"first", "rest"}
    assert sum(row.terms.values()) == pytest.approx(row.loss)
    assert row.loss == pytest.approx(plain.loss)
    assert row.terms["first"] == pytest.approx(row.loss / 4)
