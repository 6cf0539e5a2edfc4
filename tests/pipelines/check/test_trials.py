"""What a second life in a process finds of the first, and which lines read what their iteration computed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planned_sweeps import FAST, record
from toys import defective

from perfsweep.pipelines.check import trials
from perfsweep.pipelines.check.checked import plan_check
from perfsweep.pipelines.check.trials import Read, ReadWatch
from perfsweep.pipelines.config.types import RunCommand
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, TrialSpec
from perfsweep.workloads.api import Device


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], TrialSpec]]:
    monkeypatch.setattr(defective, "SHARED", [])
    precision = torch.get_float32_matmul_precision()

    def make(name: str) -> TrialSpec:
        plan = plan_check(RunCommand(workload={"name": f"toys.defective:{name}"}), Device())
        return plan.sweep.trial_spec(plan.arms[0], Kind.EVIDENCE, "probe", tmp_path / "cache")

    yield make
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize(
    ("name", "leak"),
    [
        ("Job", None),
        ("Cached", None),
        ("Global", "a second set-up in the same process ends elsewhere: x: "),
        ("Setting", "torch's fp32_precision was cuda.matmul ieee, mkldnn.matmul ieee, "),
        ("StaleJob", "reset() does not start from the same state, the second job ends elsewhere: x"),
    ],
)
def test_what_a_life_leaves_behind_is_told(spec, tmp_path: Path, name: str, leak: str | None) -> None:
    found = trials.leaks(spec(name), tmp_path / "probe")
    assert found == [] if leak is None else len(found) == 1 and found[0].startswith(leak)


GOOD = record(FAST)
RAISED = record(FAST, outcome=Outcome.FAILED, failure=Failure(type="E", message="it is open already"))


@pytest.mark.parametrize(
    ("records", "says"),
    [([GOOD, GOOD], None), ([GOOD, RAISED], "a second set-up in the same process fails: it is open already")],
    ids=["both live", "for its reason"],
)
def test_a_second_life_that_breaks_is_told(records: list, says: str | None) -> None:
    assert trials._failed(records) == says


@pytest.mark.parametrize(("name", "reads"), [("Sound", 0), ("Reads", 1)])
def test_a_line_that_reads_in_each_iteration_is_told(spec, tmp_path: Path, name: str, reads: int) -> None:
    found = trials.reads(spec(name), tmp_path / "watched")
    assert len(found) == reads
    assert all(line.startswith(f".item() in {defective.__file__}:") for line in found)


X = torch.ones(4)


def watched(step: Callable[[], Any], times: int = 3) -> list[Read]:
    watch = ReadWatch()
    with watch:
        for number in range(times):
            if number:
                watch.next_iteration()
            step()
    return watch.always()


@pytest.mark.parametrize(
    ("read", "call"),
    [
        (lambda x: x.sum().item(), ".item()"),
        (lambda x: float(x.sum()), "float(...)"),
        (lambda x: bool(x.sum() > 0), "a condition on a tensor"),
        (lambda x: f"{x.sum():.2f}", "formatting a tensor"),
        (lambda x: np.asarray(x * 2), "numpy.asarray(...)"),
        (lambda x: [1, 2, 3][(x.sum() - 4).long()], "an index"),
        (lambda x: (x * 2).detach().cpu(), ".cpu()"),
        (lambda x: (x * 2).reshape(-1)[0].item(), ".item()"),
        (lambda x: x.add_(0).tolist(), ".tolist()"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_just_computed_is_a_read_by_the_words_of_its_line(read: Any, call: str) -> None:
    (found, *others) = watched(lambda: read(X))
    assert found.call == call and found.file == __file__ and not others


@pytest.mark.parametrize(
    "step",
    [
        lambda: X.item() if X.numel() == 1 else X.tolist(),
        lambda: X.detach().tolist(),
        lambda: X.data.reshape(2, 2)[0].tolist(),
        lambda: X.sum(),
        lambda: X.sum().shape[0:],
    ],
    ids=["what was there before", "under another name", "a view of it", "nothing", "a shape"],
)
def test_what_is_no_read_of_the_iterations_own(step: Callable[[], Any]) -> None:
    assert watched(step) == []


def test_a_value_of_the_iteration_before_has_arrived_and_what_happens_now_and_then_may_wait() -> None:
    late, count = [torch.ones(1)], itertools.count()

    def of_the_one_before() -> None:
        late.pop().item()
        late.append(X.sum())

    def now_and_then() -> None:
        total = X.sum()
        if next(count) != 1:
            total.item()

    assert watched(of_the_one_before) == watched(now_and_then) == []


def test_a_sparse_tensor_has_no_storage_and_breaks_nothing() -> None:
    assert watched(lambda: torch.eye(2).to_sparse_coo().sum()) == []
