"""Builders for jobs on small knowledge bases, and the oracle for the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from phase_times import PhaseTimes

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.data.formats import Problem
from perfsweep.workloads.prover.data.generator import parsed_rules
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.oracle import Resolver, Scorer
from perfsweep.workloads.prover.training import resolver_of
from perfsweep.workloads.prover.workload import Prover

HERE = Device(compiler=True)
SHARED = Path(__file__).parents[4] / "shared" / "data"
"""Where the real data sets lie beside a checkout, if they do."""


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prover")


@pytest.fixture
def real_data() -> Callable[[str], str]:
    """The folder of a real data set; skips where it is not at hand."""

    def folder(name: str) -> str:
        path = SHARED / name
        if not path.is_dir():
            pytest.skip(
                f"the data set {name} is not in {SHARED.parent.name}/{SHARED.name} beside this checkout"
            )
        return str(path)

    return folder


def ready(
    levels: Mapping[str, Any],
    cache_dir: Path,
    scratch_dir: Path,
    kind: str = "evidence",
    budget: int | None = None,
    **config: Any,
) -> Prover:
    """A workload before its first step. Levels that are not given follow from those that are."""
    made = ProverConfig(**config)
    rows: list[Mapping[str, float]] = []
    context = Context(
        device=HERE, scratch_dir=scratch_dir, cache_dir=cache_dir, log=rows.append, memory_budget=budget
    )
    workload = Prover()
    workload.setup(made, Space(Prover.toggles, made, HERE).closure(levels), context)
    if kind == "evidence":
        workload.prepare_evidence()
    workload.rows = rows  # type: ignore[attr-defined]
    return workload


@pytest.fixture
def set_up(cache_dir: Path, tmp_path: Path) -> Callable[..., Prover]:
    """See `ready`."""
    return functools.partial(ready, cache_dir=cache_dir, scratch_dir=tmp_path)


@pytest.fixture(scope="session")
def naive(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Prover, PhaseTimes]:
    """A finished job of the naive path, with its rows of metrics, and the phases that it marked."""
    workload, clock = ready({}, cache_dir, tmp_path_factory.mktemp("naive"), kind="counting"), PhaseTimes()
    while not workload.done():
        workload.step(clock)
    return workload, clock


@pytest.fixture
def run_to_end() -> Callable[[Prover], Prover]:
    def finish(workload: Prover) -> Prover:
        while not workload.done():
            workload.step(NullClock())
        return workload

    return finish


@pytest.fixture
def solve(set_up: Callable[..., Prover], run_to_end: Callable[[Prover], Prover]) -> Callable[..., Prover]:
    """A workload whose first job has ended."""

    def run(levels: Mapping[str, Any], **more: Any) -> Prover:
        return run_to_end(set_up(levels, **more))

    return run


@pytest.fixture
def problem() -> Callable[..., Problem]:
    """A problem from facts like ``p(a,b)`` and rules like ``h(X,Y) <- b(X,Y)``, each in one text."""

    def build(facts: str, rules: str, test: str = "", **more: Any) -> Problem:
        return Problem(triples(facts), (), triples(test), parsed_rules(rules), **more)

    return build


def triples(text: str) -> tuple[tuple[str, ...], ...]:
    found = []
    for written in text.split():
        relation, _, rest = written.rstrip(")").partition("(")
        found.append((relation, *rest.split(",")))
    return tuple(found)


@pytest.fixture
def knowledge(problem: Callable[..., Problem]) -> Callable[..., KnowledgeBase]:
    """A knowledge base from texts; see `problem`."""

    def build(facts: str, rules: str, arity: int = 2, **more: Any) -> KnowledgeBase:
        return KnowledgeBase.build(problem(facts, rules, **more), arity)

    return build


def oracles(workload: Prover) -> tuple[Resolver, Scorer]:
    """The resolver and the policy in float64 for what a workload evaluates."""
    weights = {name: tensor.double().numpy() for name, tensor in workload.weights.items()}
    shape = workload.shape_of_policy
    return resolver_of(workload.kb), Scorer(weights, shape.layers, shape.decay)


@pytest.fixture
def oracles_of() -> Callable[[Prover], tuple[Resolver, Scorer]]:
    return oracles
