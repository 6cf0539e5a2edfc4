"""One job: every candidate of every mode proved, from the first draw of corruptions to the last outcome."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.config import SIZES, ProverConfig
from perfsweep.workloads.prover.counters import Counts
from perfsweep.workloads.prover.data.corruption import Corruptor, Source, no_corruption
from perfsweep.workloads.prover.data.formats import Problem, Triple
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase, Vocabulary
from perfsweep.workloads.prover.maths.episodes import Results
from perfsweep.workloads.prover.maths.policy import PolicyShape, Weights, make_weights
from perfsweep.workloads.prover.policy_file import read_policy
from perfsweep.workloads.prover.reference import Queue, Reference
from perfsweep.workloads.prover.upstream_policy import UpstreamForm


def chosen_queries(problem: Problem, kb: KnowledgeBase, config: ProverConfig) -> Tensor:
    """Test queries [Q, 1+r] that a configuration asks for."""
    encoded = [kb.vocabulary.encode(triple) for triple in _asked(problem, config)]
    return torch.tensor(encoded, device=kb.facts.device)


def _asked(problem: Problem, config: ProverConfig) -> list[Triple]:
    """The first test queries of a seeded order, so that a longer list begins with a shorter one."""
    triples = list(dict.fromkeys(problem.test))
    if not triples:
        raise ConfigError(
            f"workload.data={config.data} with size={config.size} leaves no test query; make it larger"
        )
    random.Random(f"queries {config.query_seed}").shuffle(triples)
    return triples[: config.queries]


def first_policy(config: ProverConfig, vocabulary: Vocabulary) -> tuple[Weights, PolicyShape]:
    """The policy before any imitation: that of a file, or random weights.

    Raises
    ------
    ConfigError
        The file holds no whole policy, or one of other sizes or names.
    """
    if config.weights is None:
        given = {name: getattr(config, name) for name in SIZES}
        shape = PolicyShape(**SIZES | {name: size for name, size in given.items() if size is not None})
        return make_weights(shape, vocabulary, config.policy_seed, config.gain), shape
    form = UpstreamForm(config.atom_embedder, config.state_embedder, config.variables, "workload.")
    policy = read_policy(config.weights, f"workload.weights={config.weights}", vocabulary, form)
    for name in SIZES:
        own, given = getattr(policy.shape, name), getattr(config, name)
        if given not in (None, own):
            raise ConfigError(f"{policy.where}: workload.{name}={given} is not its {own}; leave it out")
    return policy.weights_for(vocabulary), policy.shape


def refuse_unusable(config: ProverConfig) -> None:
    """Refuse data and a policy that trials could not use.

    Raises
    ------
    ConfigError
        The message names file, line and text, or the tensor.
    """
    problem = config.problem
    kb = KnowledgeBase.build(problem, config.arity)
    queries = chosen_queries(problem, kb, config)
    for mode in config.mode_names:
        corruptor = Corruptor(kb, mode, min(config.corruptions or 2, 2), config.corruption_seed)
        if all(corruptor.together(block).sizes.max() < 2 for block in queries.split(16)):
            raise no_corruption(mode)
    if config.weights:
        first_policy(config, kb.vocabulary)


@dataclass
class Task:
    """What a job is given.

    Attributes
    ----------
    queries : [Q, 1+r]
    slab : rows of a slab, None for all candidates at once
    budget : bytes that a slab may need
    log : takes one row of metrics per iteration
    traces : whether actions are kept
    """

    arm: Reference
    config: ProverConfig
    queries: Tensor
    slab: int | None
    budget: int
    counts: Counts
    log: Callable[[Mapping[str, float]], None]
    traces: bool = False

    @property
    def kb(self) -> KnowledgeBase:
        """What is known."""
        return self.arm.kb

    def corruptor(self, mode: str) -> Corruptor:
        """What draws the corruptions of a mode."""
        return Corruptor(self.kb, mode, self.config.corruptions, self.config.corruption_seed)


@dataclass
class ModeResult:
    """Outcomes of one mode: arrays by name [N], and candidates by query [Q]."""

    outcome: dict[str, np.ndarray]
    sizes: np.ndarray


@dataclass
class Job:
    """Runs the modes one after the other; `passes` yields after every iteration."""

    task: Task
    results: dict[str, ModeResult] = field(default_factory=dict)
    finished: int = 0
    running: Results | None = None
    step_rows: list[dict[str, float]] = field(default_factory=list)

    @property
    def scored(self) -> int:
        """Candidates with an outcome."""
        return self.finished + (self.running.finished if self.running else 0)

    def passes(self) -> Iterator[None]:
        """The whole job. Stops once before any work."""
        yield
        self.task.arm.begin_job()
        for mode in self.task.config.mode_names:
            yield from self._mode(mode)
        self._settle()

    def _mode(self, mode: str) -> Iterator[None]:
        task, corruptor = self.task, self.task.corruptor(mode)
        source = Source(task.arm.draws(corruptor, task.queries), task.queries[:0])
        self.running = Results(task.queries.device, traces=task.traces)
        queue = Queue(source, self.running, task.counts.iteration, task.slab, task.budget)
        yield from task.arm.schedule(queue)
        task.counts.add("corruption_batches", corruptor.batches)
        sizes = source.owners.cpu().numpy()
        self.finished += self.running.finished
        self.results[mode] = ModeResult(self.running.arrays(), sizes)
        self.running = None
        if self.finished and int(sizes.max()) < 2:
            raise no_corruption(mode)

    def _settle(self) -> None:
        """Log one row per iteration; waiting for the device is left to the end of the job."""
        task = self.task
        left = sum(len(found.outcome["depth"]) for found in self.results.values())
        self.step_rows = task.counts.settle()
        for row in self.step_rows:
            left -= int(row["done"])
            task.log(_log_row(row, left))
        task.counts.add("jobs")


LOGGED = (
    *("step_ms", "active", "refilled", "done", "row_steps", "useful_row_steps", "states_real"),
    *("states_padded", "fact_pairs", "rule_pairs", "bytes_packed", "deferred", "overflow"),
)


def _log_row(row: Mapping[str, float], left: int) -> dict[str, float]:
    """One iteration as logged. Padding done with its slab is no candidate: `queue_left` ends <= 0."""
    logged = {name: row.get(name, 0.0) for name in LOGGED}
    rate = 1e3 * row["done"] / row["step_ms"] if row["step_ms"] > 0 else 0.0
    return {**logged, "queue_left": float(max(left, 0)), "cand_per_s": rate}
