"""The naive path does what an unoptimised script does, learns, resumes, and tells what it did."""

from __future__ import annotations

import threading
from pathlib import Path

import torch

from perfsweep.workloads.training import checkpoints
from perfsweep.workloads.training.checkpoints import AsyncWriter

SMALL = {"width": 4}


class Phases:
    """A clock that writes down which phases were entered, and checks that none lies in another."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.open = 0

    def phase(self, name: str) -> Phases:
        self.entered.append(name)
        return self

    def __enter__(self) -> None:
        self.open += 1
        assert self.open == 1

    def __exit__(self, *details: object) -> None:
        self.open -= 1


def test_five_epochs_of_the_default_training_classify_nine_of_ten_held_out_digits(start, run) -> None:
    workload = start()
    chance = workload.numbers()["accuracy"]
    run(workload, 55)
    # Seeds 0 to 9 reach 0.94 to 0.99; a network that learns nothing stays near 0.1.
    assert workload.numbers()["accuracy"] > 0.9 > 0.3 > chance


def test_the_naive_path_updates_parameters_and_decodes_rows_one_by_one_in_float32(operations_of) -> None:
    per_tensor = []
    for depth in (1, 3):
        operations = operations_of(config={"width": 4, "depth": depth})
        by_name = operations.by_name
        per_tensor.append(by_name["addcdiv_"])
        assert not any(name.startswith(("_foreach", "_fused")) for name in by_name)
        assert by_name["zero_"] + by_name["_foreach_zero_"] > 0, "gradients are zeroed, and added to"
        # Each of 128 examples is divided by its brightest value alone.
        assert by_name["div"] >= 128 and not operations.low_precision
    # Stem and head have two tensors each, a block four: AdamW divides once for each of them.
    assert per_tensor == [8, 16]


def test_phases_are_marked_in_order_and_never_nested(start) -> None:
    workload, clock = (
        start(config={"width": 4, "eval_every": 1, "checkpoint_every": 1}, micro_batch=64),
        Phases(),
    )
    for _ in range(11):
        workload.step(clock)
    usual = ["data", "optimizer", "forward", "backward", "forward", "backward", "optimizer"]
    assert clock.entered == usual * 11 + ["evaluate", "gc", "checkpoint"]


def test_different_seeds_train_differently_and_equal_ones_bit_for_bit(evidence_of) -> None:
    first, again, other = (evidence_of(5, config=SMALL, seed=seed).tensors["losses"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_numbers_are_figures_of_the_results(start, run) -> None:
    workload = start(config=SMALL)
    run(workload, 2)
    numbers = workload.numbers()
    assert set(numbers) == {"last_loss", "accuracy", "parameter_norm"}
    assert numbers["last_loss"] == workload._losses.history[-1].item()


def test_the_evidence_is_measured_at_the_initial_and_at_the_last_parameters(start, run) -> None:
    workload = start(config=SMALL, kind="evidence")
    at_start = workload.evidence().tensors
    assert workload.counters()["micro_steps"] == 0  # the probe is no part of the training
    assert [parameter.grad for parameter in workload.model.parameters()] == [None] * 8
    run(workload, 5)
    at_end = workload.evidence().tensors
    assert torch.equal(at_start["first_gradient"], at_end["first_gradient"])
    assert not torch.equal(at_start["probe_logits"], at_end["probe_logits"])
    assert not torch.equal(at_start["parameters"], at_end["parameters"])
    assert len(at_end["losses"]) == 5


def test_a_writer_that_does_not_copy_is_caught_by_the_evidence(start, run, monkeypatch) -> None:
    workload = start(kind="evidence", checkpoint="async", config={"width": 4})
    run(workload, 2)
    assert workload.evidence().numbers["checkpoint_error"] == 0.0
    later = threading.Event()

    def write_later(state, file: Path) -> None:
        assert later.wait(timeout=120)
        checkpoints.write(state, file)

    def save_without_copy(self, state, file: Path) -> None:
        self._pending = self._thread.submit(write_later, state, file)

    monkeypatch.setattr(AsyncWriter, "save", save_without_copy)
    threading.Timer(0.1, later.set).start()
    assert workload.evidence().numbers["checkpoint_error"] > 0.5


def test_reading_a_checkpoint_back_leaves_the_training_where_it_was(start, run) -> None:
    looked, undisturbed = (start(kind="evidence", checkpoint="async", config={"width": 4}) for _ in range(2))
    run(looked, 3)
    looked.evidence()
    run(looked, 3)
    run(undisturbed, 6)
    assert torch.equal(looked.evidence().tensors["parameters"], undisturbed.evidence().tensors["parameters"])


def test_weights_decay_as_the_configuration_says(start) -> None:
    (group,) = start(config={**SMALL, "weight_decay": 0.25, "lr": 0.125})._optimizer.param_groups
    assert (group["weight_decay"], group["lr"]) == (0.25, 0.125)
