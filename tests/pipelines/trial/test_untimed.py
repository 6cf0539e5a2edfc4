"""What trials without times do with a workload, step by step, and what they keep of it."""

from __future__ import annotations

import dataclasses
import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from planned_sweeps import spec

from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import Keep, read_evidence
from perfsweep.pipelines.store.schema import Kind
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.untimed import (
    begin_evidence,
    counting_trial,
    course_trial,
    evidence_trial,
    quality_trial,
    result_trial,
)
from perfsweep.workloads.api import Device, Evidence, Replayable, Workload
from perfsweep.workloads.errors import ConfigError


@dataclass
class Config:
    """Nothing to choose."""


class Steps(Workload):
    """Counts its steps; each is two units and adds one."""

    Config = Config
    toggles = ()
    checks = ()

    def __init__(self) -> None:
        self.steps = self.resets = self.captured_steps = 0
        self.captured = True
        self.prepared_at: int | None = None

    def setup(self, config, levels, context) -> None: ...

    def step(self, clock) -> None:
        self.steps += 1
        self.captured_steps += self.captured
        torch.ones(1).add_(1)

    def progress(self) -> float:
        return 2.0 * self.steps

    def numbers(self) -> dict[str, float]:
        return {"loss": 1 / self.steps, "own": 1.0}

    def counters(self) -> dict[str, float]:
        return {"flips": 3.0 * self.steps}

    def prepare_evidence(self) -> None:
        self.prepared_at = self.steps
        torch.rand(3)

    @contextmanager
    def uncaptured(self):
        self.captured = False
        yield
        self.captured = True

    def evidence(self) -> Evidence:
        tensors = {
            "half": torch.tensor([1.5], dtype=torch.bfloat16, requires_grad=True),
            "whole": np.arange(3),
        }
        return Evidence(tensors, {"own": 2.0})

    def keep(self, folder: Path) -> None:
        (folder / "model.txt").write_text(f"{self.steps} steps")


class Job(Steps):
    """Over after five steps."""

    shape = "job"

    def done(self) -> bool:
        return self.steps >= 5

    def reset(self) -> None:
        self.resets += 1
        self.steps = 0

    def progress(self) -> float:
        return 10.0


MEASURE = MeasureConfig(counting_iterations=4, evidence_iterations=3, iterations=6)


def run(body, workload: Workload, folder: Path, **changes: Any) -> dict[str, Any]:
    before = torch.are_deterministic_algorithms_enabled()
    try:
        planned = spec(**{"kind": Kind.EVIDENCE, "measure": MEASURE, **changes})
        return body(workload, planned, folder, Device(), BufferedLog())
    finally:
        torch.use_deterministic_algorithms(before)


def status(folder: Path) -> str:
    (file,) = [path for path in folder.iterdir() if "status" in path.name]
    text = file.read_text()
    return str(json.loads(text)) if text.startswith("{") else text


def test_counts_of_steps_are_for_an_iteration_and_a_second_pass_sees_what_is_not_captured(
    tmp_path: Path,
) -> None:
    workload = Steps()
    workload.cadence = 3
    found = run(counting_trial, workload, tmp_path)
    assert found["units"] == 2.0 * 6, "whole cadences"
    assert found["counters"]["flips"] == 3.0
    assert found["counters"]["wandb_calls"] == found["counters"]["wandb_commits"] == 0
    assert (workload.captured_steps, workload.steps) == (6, 6 + 4)
    assert "counting" in status(tmp_path)


def test_counts_of_a_job_are_those_of_all_of_it_and_the_second_pass_begins_anew(tmp_path: Path) -> None:
    for asked, done in ((4, 4), (9, 5)):
        workload = Job()
        measure = dataclasses.replace(MEASURE, counting_iterations=asked)
        found = run(counting_trial, workload, tmp_path, measure=measure)
        assert (found["units"], found["counters"]["flips"]) == (10.0, 15.0)
        assert (workload.resets, workload.steps) == (1, done), "a pass ends with the job"


def test_evidence_is_of_a_fixed_number_of_steps_and_its_own_numbers_win(tmp_path: Path) -> None:
    workload = Steps()
    found = run(evidence_trial, workload, tmp_path)
    assert (found["units"], found["reached"], workload.steps) == (6.0, 3, 3)
    assert found["numbers"] == {"loss": pytest.approx(1 / 3), "own": 1.0, "units": 6.0}
    assert found["iteration_ns"] > 0
    assert workload.prepared_at == 0
    kept = read_evidence(tmp_path)
    assert kept.numbers == {"loss": pytest.approx(1 / 3), "own": 2.0}
    assert kept.tensors["half"].dtype == np.float32 and kept.tensors["half"].tolist() == [1.5]
    assert kept.tensors["whole"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("region_s", "cadence", "steps"),
    [(1e-9, 20, 4), (60.0, 20, 23), (60.0, 3, 3)],
    ids=["longer than a region", "a region of seconds", "evidence has seen a cadence"],
)
def test_what_comes_once_a_cadence_is_waited_for_where_it_fits_into_a_region(
    region_s: float, cadence: int, steps: int, tmp_path: Path
) -> None:
    workload = Steps()
    workload.cadence = cadence
    found = run(evidence_trial, workload, tmp_path, measure=dataclasses.replace(MEASURE, region_s=region_s))
    assert workload.steps == steps
    assert (found["units"], found["reached"]) == (6.0, 3), "evidence is of its own steps alone"
    assert found["numbers"]["loss"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("known", "more"), [(True, 0), (False, 5)])
def test_a_loop_whose_cadence_is_not_known_goes_on_after_its_evidence(
    known: bool, more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsweep.pipelines.trial.timing.iterations.suffices", lambda times: len(times) == 5)
    workload = Steps()
    monkeypatch.setattr(Steps, "cadence_is_known", known)
    found = run(evidence_trial, workload, tmp_path)
    assert workload.steps == 3 + more
    assert (found["units"], found["reached"], "cadence" in found) == (6.0, 3, not known)


class Short(Steps):
    """A loop of 400 iterations."""

    cadence_is_known = False

    def step(self, clock) -> None:
        if self.steps == 400:
            self.length = self.steps
            raise ConfigError("it has ended")
        super().step(clock)


@pytest.mark.parametrize(
    ("region_s", "iterations", "replay", "length"),
    [
        (60.0, None, None, 400),
        (1e-9, None, None, None),
        (60.0, 5, None, None),
        (60.0, None, "/another", None),
    ],
    ids=["longer than the loop", "short", "of so many iterations", "an arm that replays the baseline"],
)
def test_evidence_finds_the_end_of_a_loop_that_is_shorter_than_a_region_may_be(
    region_s: float,
    iterations: int | None,
    replay: str | None,
    length: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perfsweep.pipelines.trial.timing.iterations.suffices", lambda times: len(times) == 5)
    measure = dataclasses.replace(MEASURE, region_s=region_s, iterations=iterations)
    found = run(evidence_trial, Short(), tmp_path, measure=measure, replay=replay)
    assert (found["units"], found["quantities"].get("length")) == (6.0, length)


def test_evidence_of_a_job_is_that_of_its_end(tmp_path: Path) -> None:
    workload = Job()
    found = run(evidence_trial, workload, tmp_path)
    assert (found["reached"], workload.steps, found["units"]) == (0, 5, 10.0)


def test_evidence_is_computed_deterministically_and_what_prepares_it_draws_nothing() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    try:
        torch.manual_seed(1)
        expected = torch.rand(2)
        torch.manual_seed(1)
        begin_evidence(Steps())
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
        assert torch.equal(torch.rand(2), expected)
    finally:
        torch.use_deterministic_algorithms(before)
        torch.utils.deterministic.fill_uninitialized_memory = True


TARGET = dataclasses.replace(MEASURE, target_figure="loss", target=0.1, target_every=4, target_steps=18)


@pytest.mark.parametrize(
    ("target", "looks"),
    [(0.1, [4, 8, 12]), (-1.0, [4, 8, 12, 16]), (-1.0, [*range(1, 19)])],
    ids=["reached", "given up", "looked at after each step"],
)
def test_a_training_ends_with_the_first_look_that_reaches_the_target_or_with_the_last(
    target: float, looks: list[int], tmp_path: Path
) -> None:
    workload = Steps()
    measure = dataclasses.replace(TARGET, target=target, target_every=looks[0])
    found = run(quality_trial, workload, tmp_path, measure=measure)
    assert found["course"] == {look: {"loss": 1 / look} for look in looks}
    assert found["reached"] == workload.steps == looks[-1] and found["units"] == 2.0 * looks[-1]


@pytest.mark.parametrize("body", [evidence_trial, quality_trial])
def test_a_figure_that_the_workload_lacks_is_refused_by_name_before_anything_is_timed(
    tmp_path: Path, body: Any
) -> None:
    measure = dataclasses.replace(TARGET, target_figure="beauty")
    with pytest.raises(ConfigError, match=r"measure\.target_figure=beauty: .*choose from: loss, own, units"):
        run(body, Steps(), tmp_path, measure=measure)


def test_a_course_asks_for_numbers_where_timing_trials_ended(tmp_path: Path) -> None:
    workload = Steps()
    found = run(course_trial, workload, tmp_path, numbers_at=(2, 5))
    assert {at: numbers["units"] for at, numbers in found["course"].items()} == {2: 4.0, 5: 10.0}
    assert (found["reached"], found["units"], workload.steps) == (5, 10.0, 5)
    assert workload.prepared_at == 0


@pytest.mark.parametrize(("length", "asked", "steps"), [(None, 0, 6), (8, 0, 8), (8, 2, 2)])
def test_a_result_is_of_the_whole_training_or_as_long_as_asked(
    tmp_path: Path, length: int | None, asked: int, steps: int
) -> None:
    workload = Steps()
    workload.length = length
    found = run(result_trial, workload, tmp_path, keep=Keep(folder=str(tmp_path / "kept"), iterations=asked))
    assert (found["reached"], found["units"]) == (steps, 2.0 * steps)
    assert found["numbers"]["units"] == 2.0 * steps
    assert (tmp_path / "kept/model.txt").read_text() == f"{steps} steps"
    assert [path.name for path in tmp_path.iterdir() if "kept" in path.name] == ["kept"]


def test_what_breaks_off_while_it_is_written_stays_beside_the_folder(tmp_path: Path) -> None:
    class Broken(Steps):
        def keep(self, folder: Path) -> None:
            (folder / "half.txt").touch()
            raise OSError(28, "No space left on device")

    kept = Keep(folder=str(tmp_path / "kept"), iterations=1)
    with pytest.raises(ConfigError, match=r"kept: No space left on device; what was written lies in ") as no:
        run(result_trial, Broken(), tmp_path, keep=kept)
    partial = Path(str(no.value).rpartition(" ")[2])
    assert (partial / "half.txt").exists() and partial != tmp_path / "kept"
    assert list((tmp_path / "kept").iterdir()) == []
    run(result_trial, Steps(), tmp_path, keep=kept)
    assert not partial.exists()


class Descent:
    """An optimizer, as far as replays look at one: torch's own would import for a second."""

    def __init__(self, parameter: torch.Tensor) -> None:
        self.parameter, self.state, self.hooks = parameter, dict[Any, Any](), list[Any]()
        self.param_groups = [{"params": [parameter]}]

    def register_step_pre_hook(self, hook: Any) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: self.hooks.remove(hook))

    def step(self) -> None:
        for hook in self.hooks:
            hook(self, (), {})
        with torch.no_grad():
            self.parameter -= 0.1 * self.parameter.grad


class Descends(Steps):
    """Goes down a parabola, from wherever the states of a replay put it."""

    def __init__(self, at: float = 1.0) -> None:
        super().__init__()
        self.x = torch.tensor([at], requires_grad=True)
        self.optimizer = Descent(self.x)

    def step(self, clock) -> None:
        self.steps += 1
        self.x.grad = (2 * self.x).detach()
        self.optimizer.step()

    def load(self, state: Any) -> None:
        self.x.data.copy_(state["x"])

    def replayable(self) -> Replayable:
        return Replayable({"x": self.x}, self.optimizer, lambda: {"x": self.x.detach()}, self.load)  # type: ignore[arg-type]


def test_the_reference_keeps_its_states_and_another_arm_replays_them_after_its_own_evidence(
    tmp_path: Path,
) -> None:
    folders, states = [tmp_path / name for name in ("reference", "arm")], tmp_path / "reference" / "states"
    arms = [Descends(), Descends(at=-3.0)]
    for folder, workload in zip(folders, arms, strict=True):
        folder.mkdir()
        found = run(evidence_trial, workload, folder, replay=str(states))
        assert (found["units"], found["reached"]) == (6.0, 3), "without what is replayed"
    kept, replayed = map(read_evidence, folders)
    names = [f"replay/{number}" for number in range(3)]
    assert sorted(name for name in kept.tensors if "replay" in name) == names
    gradients = {name: kept.tensors[name].tolist() for name in names}
    assert gradients == {name: replayed.tensors[name].tolist() for name in names}
    assert gradients["replay/0"] == [2.0] and kept.parts["replay/1"] == replayed.parts["replay/1"] == {"x": 1}
    assert (arms[0].steps, arms[1].steps) == (3, 3 + 3)
