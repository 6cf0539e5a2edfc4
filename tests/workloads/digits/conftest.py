"""Digits trainings to look into: started with any levels, closed after the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from perfsweep.workloads.api import Context, Device, Evidence, NullClock
from perfsweep.workloads.digits.config import DigitsConfig
from perfsweep.workloads.digits.workload import Digits

BASELINE = {toggle.name: toggle.levels[0].value for toggle in Digits.toggles}

Start = Callable[..., Digits]
Run = Callable[[Digits, int], None]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Several threads only wait for one another on machines that others use too."""
    torch.set_num_threads(1)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Sets up a training: ``start(amp="bf16", config={"width": 4}, kind="evidence", log=rows.append)``."""
    running: list[Digits] = []

    def make(
        config: dict[str, Any] | None = None,
        kind: str = "timing",
        seed: int = 0,
        device: str = "cpu",
        log: Any = None,
        **levels: Any,
    ) -> Digits:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        facts = Device(type=device, cores=2, compiler=True)
        context = Context(
            facts, scratch_dir=folder, cache_dir=tmp_path, seed=seed, log=log or (lambda row: None)
        )
        workload = Digits()
        running.append(workload)
        workload.setup(DigitsConfig(**(config or {})), {**BASELINE, **levels}, context)
        if kind == "evidence":
            workload.prepare_evidence()
        return workload

    yield make
    for workload in running:
        workload.close()


@pytest.fixture
def run() -> Run:
    """Does some iterations."""

    def iterate(workload: Digits, iterations: int) -> None:
        for _ in range(iterations):
            workload.step(NullClock())

    return iterate


@pytest.fixture
def evidence_of(start: Start, run: Run) -> Callable[..., Evidence]:
    """What a training of some iterations has computed: ``evidence_of(24, optimizer="fused")``."""

    def compute(iterations: int, **arm: Any) -> Evidence:
        workload = start(kind="evidence", **arm)
        run(workload, iterations)
        return workload.evidence()

    return compute


class Dispatched(TorchDispatchMode):
    """Counts operations by name, and those that return 16-bit numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()
        self.low_precision = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.by_name[func.overloadpacket.__name__] += 1
        self.low_precision += isinstance(result, torch.Tensor) and result.dtype in (
            torch.bfloat16,
            torch.float16,
        )
        return result


@pytest.fixture
def operations_of(start: Start, run: Run) -> Callable[..., Dispatched]:
    """Operations of one iteration after two others, in which everything lazy has been built."""

    def count(**arm: Any) -> Dispatched:
        workload = start(**arm)
        run(workload, 2)
        with Dispatched() as dispatched:
            run(workload, 1)
        return dispatched

    return count


@pytest.fixture
def saved_bytes_of(start: Start, run: Run) -> Callable[..., int]:
    """Bytes of distinct tensors that one iteration keeps for its backward pass."""

    def count(**arm: Any) -> int:
        workload = start(**arm)
        run(workload, 1)
        kept: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            run(workload, 1)
        return sum(kept.values())

    return count
