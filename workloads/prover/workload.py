"""Prover: link prediction by proofs. A policy walks from candidates towards TRUE; scores rank queries."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from perfsweep.workloads.api import Clock, Context, Evidence, Levels, Workload
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.job_passes import JobOfPasses
from perfsweep.workloads.prover import declaration
from perfsweep.workloads.prover import evidence as judging
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.counters import Counts
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.job import Job, Task, chosen_queries, first_policy
from perfsweep.workloads.prover.maths.policy import PolicyShape, Weights, weights_digest
from perfsweep.workloads.prover.maths.slab_size import best_slab, cache_file, device_budget
from perfsweep.workloads.prover.policy_file import policy_of, save_policy
from perfsweep.workloads.prover.ranking import ranks_of
from perfsweep.workloads.prover.training import trained
from perfsweep.workloads.prover.variants import arm
from perfsweep.workloads.training.precision import set_tf32, tf32_is_on


class Prover(JobOfPasses, declaration.Prover, Workload):
    """A job; see what it declares."""

    def __init__(self) -> None:
        self._endings = contextlib.ExitStack()

    def setup(self, config: ProverConfig, levels: Levels, context: Context) -> None:
        """Load the data and choose the paths.

        Raises
        ------
        ConfigError
            The data cannot be used.
        MemoryError
            All candidates at once are predicted not to fit.
        """
        self.config, self.levels, self.context, self.counts = config, levels, context, Counts()
        reference = arm(levels)
        set_tf32(reference.tf32, self._endings)
        self.kb = KnowledgeBase.build(config.problem, config.arity, context.device.type)
        self.queries = chosen_queries(config.problem, self.kb, config)
        self.weights, self.shape_of_policy = self._policy()
        self.arm = reference(levels, self.kb, self.weights, self.shape_of_policy, self._phase)
        self.budget = device_budget(config.memory_gb, context.memory_budget, context.device.type)
        with torch.no_grad():
            self.arm.begin_job()
            slab = self.arm.slab_size(self._best_slab)
            self._warm_up(slab)
        self.task = Task(self.arm, config, self.queries, slab, self.budget, self.counts, context.log)
        self.arm.warmed_up()
        self._begin()

    def _policy(self) -> tuple[Weights, PolicyShape]:
        config = self.config
        weights, shape = first_policy(config, self.kb.vocabulary)
        if not config.imitation:
            return weights, shape
        key = f"{self.kb.digest()} {weights_digest(weights)} {shape} {config.imitation}"
        file = self.context.cache_dir / f"prover-policy-{hashlib.sha256(key.encode()).hexdigest()[:16]}.pt"
        return trained(self.kb, weights, shape, config.imitation, file), shape

    def _phase(self, name: str) -> AbstractContextManager[Any]:
        return self.clock.phase(name)

    def _best_slab(self) -> int:
        """The size that takes least time, kept for this device, data, policy, arm and budget."""
        key = (self.kb.digest(), self.shape_of_policy, sorted(self.levels.items()), self.budget)
        best, steps = best_slab(
            step=self.arm.step,
            start=self.arm.start,
            queries=self.queries,
            most=self._most_candidates,
            memory=self.arm.memory,
            budget=self.budget,
            file=cache_file(self.context.cache_dir, self.context.device.name, *key),
        )
        self.counts.add("probe_steps", steps)
        return best

    @property
    def _most_candidates(self) -> int:
        """Candidates of one mode, if every corruption is valid."""
        return len(self.queries) * (1 + (self.config.corruptions or len(self.kb.vocabulary.constants)))

    def _warm_up(self, slab: int | None) -> None:
        """What a first step allocates, loads and compiles."""
        for size in self.arm.warm_up_sizes(slab):
            atoms = self.queries.repeat(-(-size // len(self.queries)), 1)[:size]
            self.arm.step(self.arm.start(atoms, torch.full((size,), -1, device=atoms.device)))
            self.counts.add("warmup_rows", size)

    def _begin(self) -> None:
        self.job = Job(self.task)
        self.begin(self.job.passes())

    @torch.no_grad()
    def step(self, clock: Clock) -> None:
        """Run the next iteration of the job, without gradients."""
        super().step(clock)

    def reset(self) -> None:
        """Forget all outcomes and start over."""
        self._begin()

    def progress(self) -> float:
        """Candidates scored, proved or not."""
        return float(self.job.scored)

    def counters(self) -> Mapping[str, float]:
        """Counts since set-up."""
        counts, memory = self.counts.snapshot({}), self.arm.memory
        for name, amount in self.arm.counted().items():
            counts[name] += amount
        counts["policy_macs"] = counts["states_evaluated"] * self.arm.policy.macs
        if tf32_is_on():
            counts["tf32_products"] = counts["states_evaluated"]
        useful = max(counts["useful_row_steps"], 1.0)
        rows = self.task.slab or self._most_candidates
        return {
            **counts,
            "fact_pairs_per_step": counts["fact_pairs"] / useful,
            "padded_over_real": counts["states_padded"] / max(counts["states_real"], 1.0),
            "row_steps_over_useful": counts["row_steps"] / useful,
            "idle_share": 1 - useful / max(counts["row_steps"], useful),
            "derived_states_bytes": float(memory.derived_bytes(rows)),
            "raw_states_bytes": float(memory.raw_bytes(rows)),
            "predicted_bytes": float(memory.peak_bytes(rows)),
        }

    def prepare_evidence(self) -> None:
        """Keep the actions of every candidate, which the oracle follows."""
        self.task.traces = True

    def numbers(self) -> dict[str, float]:
        """MRR and Hits@k of the finished job, candidates that were proved, and how deep."""
        return judging.numbers(self.job)

    def evidence(self) -> Evidence:
        """Metrics and outcomes of the finished job, and the oracle's figures."""
        return judging.collect(self.job) if self.job.results else Evidence()

    def keep(self, folder: Path) -> None:
        """Write ``ranks.npz``, ``metrics.json`` and ``policy.pt`` of the finished job into an empty folder.

        Raises
        ------
        ConfigError
            The job has not ended, or the folder cannot be written.
        """
        if not self.done():
            raise ConfigError("keep: the job has not ended, and there are no ranks before; step until done()")
        try:
            ranks_of(self.job, self.levels).save(folder)
        except OSError as error:
            raise ConfigError(
                f"keep={folder}: cannot be written: {error.strerror}; choose another folder"
            ) from None
        save_policy(policy_of(self.weights, self.shape_of_policy, self.kb.vocabulary), folder / "policy.pt")

    def data_digest(self) -> str:
        """Data, candidates and policy: what runs must share to be compared."""
        config = self.config
        asked = hashlib.sha256(self.queries.cpu().numpy().tobytes()).hexdigest()[:16]
        drawn = f"{config.modes} {config.corruptions} {config.corruption_seed}"
        key = f"{self.kb.digest()} {asked} {drawn} {weights_digest(self.weights)} {self.shape_of_policy}"
        return hashlib.sha256(key.encode()).hexdigest()[:16]

    def close(self) -> None:
        """Put the process's settings back."""
        self._endings.close()
