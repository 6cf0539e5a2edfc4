"""Clipping, schedules, accumulation and a precision of the training's own do what a loop by hand does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import INPUTS, TARGETS, Train, go_on, gradient, parameters, plain_sgd, rate, squared_error
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from perfsweep.workloads.errors import ConfigError, UnsupportedHere
from perfsweep.workloads.training import Parts
from perfsweep.workloads.training.precision import grad_scaler
from perfsweep.workloads.training.updates import clipping_of, optimizer_of


def halved(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.ExponentialLR(optimizer, gamma=0.5)


@pytest.mark.parametrize(
    ("fields", "clipped"),
    [
        ({}, [[3, 4], [0, 12]]),
        ({"clip_norm": 6.5}, [[1.5, 2], [0, 6]]),
        ({"clip_value": 3.5}, [[3, 3.5], [0, 3.5]]),
        ({"groups": ({"clip_norm": 2.5}, {})}, [[1.5, 2], [0, 12]]),
        ({"groups": ({"clip_norm": 2.5}, {"clip_norm": 3.0})}, [[1.5, 2], [0, 3]]),
    ],
    ids=str,
)
def test_gradients_are_clipped_all_together_or_each_group_by_its_own(fields: Any, clipped: Any) -> None:
    """Norms of 5, 12 and, together, 13; a parameter that is not trained does not count."""
    model = torch.nn.ParameterList([torch.zeros(2) for _ in range(3)])
    for one, values in zip(model, ([3.0, 4.0], [0.0, 12.0], [99.0, 99.0]), strict=True):
        one.grad = torch.tensor(values)
    model[2].requires_grad_(False)
    if groups := fields.get("groups"):
        fields = {"groups": [{"params": [one], **own} for one, own in zip(model, groups, strict=False)]}
    off = grad_scaler("off", torch.device("cpu"))
    clipping_of(Parts(model, [], squared_error, **fields), model)(plain_sgd(model.parameters()), off)
    found = [one.grad.tolist() for one in model]  # type: ignore[union-attr]
    assert found == [pytest.approx(own, rel=1e-5) for own in (*clipped, [99, 99])]


@pytest.mark.parametrize("limit", [{"clip_norm": 0.02}, {"clip_value": 0.01}], ids=str)
def test_gradients_of_a_scaled_loss_are_unscaled_before_they_are_clipped(train: Train, limit: Any) -> None:
    def small(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 0.01 * squared_error(model, x, y)  # larger ones overflow when they are scaled

    exact = train({**limit, "loss": small}, steps=1)
    scaled = train({**limit, "loss": small}, steps=1, amp="fp16")
    assert scaled._scaler.get_scale() > 1000
    # fp16 rounds to 11 significant bits
    assert torch.allclose(gradient(scaled), gradient(exact), rtol=2e-2, atol=1e-5)
    assert gradient(train({"loss": small}, steps=1)).norm() > 0.03


def test_a_schedule_steps_after_every_iteration_unless_told_otherwise(train: Train) -> None:
    workload = train({"schedule": halved})
    rates = []
    for _ in range(3):
        rates.append(rate(workload))
        go_on(workload, 1)
    assert rates == [0.1, 0.05, 0.025]


EVALUATED = {"evaluate": lambda model: {"error": 1.0}, "evaluate_every": 2}


def test_a_schedule_of_evaluations_steps_after_each(train: Train) -> None:
    workload = train({"schedule": halved, "schedule_every": "evaluation", **EVALUATED}, steps=5)
    assert rate(workload) == 0.025


def test_a_plateau_is_one_of_the_first_figure(train: Train) -> None:
    def plateau(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        return lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    flat = {"schedule": plateau, "schedule_every": "evaluation", **EVALUATED}
    errors = iter([4.0, 3.0, 2.0, 1.0])
    falling = {**flat, "evaluate": lambda model: {"error": next(errors)}}
    assert rate(train(flat, steps=4)) == 0.05
    assert rate(train(falling, steps=4)) == 0.1
    with pytest.raises(ConfigError, match="schedule_every='evaluation'"):
        train({"schedule": plateau})


@pytest.mark.parametrize("every", ["iteration", "epoch"])
def test_a_resumed_schedule_goes_on_where_it_was(train: Train, every: str) -> None:
    fields = {"schedule": lambda o: lr_scheduler.StepLR(o, step_size=3, gamma=0.5), "schedule_every": every}
    whole, before, after = train(fields, steps=12), train(fields, steps=7), train(fields)
    after.load_state_dict(before.state_dict())
    go_on(after, 5)
    assert rate(after) == rate(whole) < 0.1
    assert torch.equal(parameters(after), parameters(whole))


def test_pieces_of_accumulated_batches_weigh_what_their_rows_do(train: Train) -> None:
    """Batches of 12 in pieces of 8 and 4."""
    together, apart = train(steps=1), train({"accumulate": 2}, steps=1, batch_size=12, micro_batch=8)
    assert torch.allclose(gradient(apart), gradient(together), rtol=1e-5)
    assert apart.counters()["micro_steps"] == 4


def test_a_training_equals_the_loop_written_by_hand(train: Train) -> None:
    """Clipping, a schedule and accumulation together, over two epochs."""
    fields = {"clip_norm": 0.5, "schedule": halved, "schedule_every": "epoch", "accumulate": 2}
    given = {"loader": lambda **how: DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=24, **how)}
    workload = train({**fields, **given}, steps=3)

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = plain_sgd(model.parameters())
    schedule = halved(optimizer)
    for epoch in range(2):
        for number, (first, end) in enumerate([(0, 24), (24, 48), (48, 70)]):
            before = epoch * 3 + number
            window = [48, 46, 46][before // 2]  # rows of the two batches that are joined
            if before == 3:
                schedule.step()
            x, y = INPUTS[first:end], TARGETS[first:end]
            (squared_error(model, x, y) * (len(x) / window)).backward()
            if before % 2:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
    assert torch.allclose(parameters(workload), torch.cat([p.detach().flatten() for p in model.parameters()]))


def test_a_training_may_state_its_own_precision(train: Train) -> None:
    seen: list[bool] = []

    def watching(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return squared_error(model, x, y)

    for own in (None, lambda: torch.autocast("cpu", torch.bfloat16)):
        train({"autocast": own, "loss": watching}, steps=2)
    assert seen == [False, False, True, True]


def weights() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(3))]


def test_an_implementation_that_an_optimiser_lacks_is_unsupported_and_its_baseline_is_not() -> None:
    for make in (
        torch.optim.Adadelta,
        torch.optim.LBFGS,
        lambda values, **own: torch.optim.Rprop(values, **own),
    ):
        assert optimizer_of(make, weights(), "default").param_groups
        with pytest.raises(UnsupportedHere, match=r"^optimizer=fused: fused is no option of this optimiser$"):
            optimizer_of(make, weights(), "fused")


def test_parameters_that_a_fused_update_does_not_take_make_it_unsupported() -> None:
    def refuse(values: list[torch.nn.Parameter], *, foreach: bool, fused: bool) -> torch.optim.Optimizer:
        if fused:  # as torch.optim does where a device has no such kernel
            raise RuntimeError("`fused=True` requires all the params to be floating point Tensors of ...")
        return torch.optim.AdamW(values, foreach=foreach)

    assert optimizer_of(refuse, weights(), "foreach").param_groups
    with pytest.raises(UnsupportedHere, match=r"^optimizer=fused: `fused=True` requires all the params"):
        optimizer_of(refuse, weights(), "fused")


def test_an_error_of_the_optimiser_itself_passes() -> None:
    def fail(values: list[torch.nn.Parameter], **own: bool) -> torch.optim.Optimizer:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer_of(fail, weights(), "fused")
    with pytest.raises(TypeError, match="nothing"):
        optimizer_of(lambda values, **own: torch.optim.AdamW(values, nothing=1, **own), weights(), "fused")
    with pytest.raises(ValueError, match="Invalid learning rate"):
        optimizer_of(lambda values, **own: torch.optim.AdamW(values, lr=-1.0, **own), weights(), "fused")
