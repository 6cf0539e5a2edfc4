"""Prover: link prediction by proofs. A policy walks from candidates towards TRUE; scores rank queries."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from perfsweep.workloads.api import Clock, Context, Evidence, Levels, Work, Workload
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.job_passes import JobOfPasses
from perfsweep.workloads.prover import evidence as judging
from perfsweep.workloads.prover.build import Choices, assemble
from perfsweep.workloads.prover.claims import CLAIMS
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.counters import Counts
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase
from perfsweep.workloads.prover.inputs import chosen_queries, first_policy, refuse_unusable
from perfsweep.workloads.prover.maths.compiled import CompiledStep
from perfsweep.workloads.prover.maths.job import Job, Task
from perfsweep.workloads.prover.maths.policy import PolicyShape, Weights, macs, weights_digest
from perfsweep.workloads.prover.maths.schedule import StepFunction, bucket_sizes
from perfsweep.workloads.prover.maths.slab_size import best_slab, cache_file, device_budget
from perfsweep.workloads.prover.policy_file import policy_of, save_policy
from perfsweep.workloads.prover.ranking import ranks_of
from perfsweep.workloads.prover.toggles import CHECKS, TOGGLES
from perfsweep.workloads.prover.training.imitation import trained
from perfsweep.workloads.training.precision import set_tf32, tf32_is_on


class Prover(JobOfPasses, Workload):
    """Proves queries over a knowledge graph by resolution with a learned policy, and ranks them.

    For those who evaluate neural provers: every test query is ranked among corrupted copies of itself, as MRR
    and Hits@k ask. It gains by dropping what is finished, looking facts up instead of comparing all, valuing
    states once and scoring in bfloat16 where float32 confirms the choice.

    A job scores every candidate of the chosen queries; an iteration is one step of one slab of candidates.

    Set-up reads the data, makes the policy and warms up. Drawing corruptions belongs to the job.
    """

    Config = ProverConfig
    toggles = TOGGLES
    claims = CLAIMS
    checks = CHECKS
    shape = "job"
    unit = "candidate"
    paths = ("weights",)

    @classmethod
    def planned(cls, config: ProverConfig) -> ProverConfig:
        """The configuration as it is; data and a policy that could not be used are refused."""
        refuse_unusable(config)
        return config

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
        self.config, self.context = config, context
        self.counts = Counts()
        self.levels, self.choices = levels, Choices.of(levels)
        set_tf32(self.choices.tf32, self._endings)
        self._load()
        self._assemble()
        slab = self._slab_size()
        self._warm_up(slab)
        self.task = self._task(slab)
        self._forget_warmup()
        self._begin()

    def _load(self) -> None:
        problem = self.config.problem
        self.kb = KnowledgeBase.build(problem, self.config.arity, self.context.device.type)
        self.queries = chosen_queries(problem, self.kb, self.config)

    def _assemble(self) -> None:
        config, context = self.config, self.context
        self.weights, self.shape_of_policy = self._policy()
        self.machinery = assemble(self.kb, self.weights, self.shape_of_policy, self.choices, self._phase)
        self.budget = device_budget(config.memory_gb, context.memory_budget, context.device.type)
        self.step_function = self._compiled() if self.choices.static else self.machinery.step
        self._begin_machinery()

    def _task(self, slab: int | None) -> Task:
        return Task(
            self.kb,
            self.config,
            self.machinery,
            self.queries,
            slab,
            self.budget,
            self.step_function,
            self.counts,
            self.context,
        )

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

    def _compiled(self) -> StepFunction:
        return CompiledStep(self.machinery.step, self.choices.compile)

    def _begin_machinery(self) -> None:
        with torch.no_grad():
            self.machinery.begin_job()

    @torch.no_grad()
    def _slab_size(self) -> int | None:
        """Rows of a slab; None for all."""
        size = self.choices.slab_size
        if size == "all":
            return None
        if size != "auto":
            return int(size)
        best, steps = best_slab(
            step=self.step_function,
            factory=self.machinery.factory,
            queries=self.queries,
            most=self._most_candidates,
            memory=self.machinery.memory,
            budget=self.budget,
            file=self._slab_file(),
        )
        self.counts.add("probe_steps", steps)
        return best

    def _slab_file(self) -> Path:
        """Where the best size is kept, for this device, data, policy, arm and budget."""
        context, arm = self.context, (self.shape_of_policy, self.choices, self.budget)
        return cache_file(context.cache_dir, context.device.name, self.kb.digest(), *arm)

    @property
    def _most_candidates(self) -> int:
        """Candidates of one mode, if every corruption is valid."""
        return len(self.queries) * (1 + (self.config.corruptions or len(self.kb.vocabulary.constants)))

    @torch.no_grad()
    def _warm_up(self, slab: int | None) -> None:
        """Two rows, or every size to be used: what a first step allocates, loads and compiles."""
        sizes = [2]
        if self.choices.warmup_exact and slab is not None:
            sizes = bucket_sizes(slab) if self.choices.skip_done == "compact" else [slab]
        for size in sizes:
            atoms = self.queries.repeat(-(-size // len(self.queries)), 1)[:size]
            numbers = torch.full((size,), -1, device=atoms.device)
            self.step_function(self.machinery.factory.start(atoms, numbers))
        self.counts.add("warmup_rows", sum(sizes))

    def _forget_warmup(self) -> None:
        """Evaluations of the warm-up are no work of any job."""
        self.machinery.values.evaluated = 0
        if self.machinery.screen:
            self.machinery.screen.screened = self.machinery.screen.rescored = 0
        if isinstance(self.step_function, CompiledStep):
            self.step_function.warm = True
            self.step_function.calls = 0

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
        machinery, folded = self.machinery, self.choices.fold
        counts = self.counts.snapshot({})
        counts["states_evaluated"] += machinery.values.evaluated
        if machinery.screen:
            counts["states_rescored"] = machinery.screen.rescored
            counts["low_precision_states"] = machinery.screen.screened
            counts["states_evaluated"] += machinery.screen.screened
        counts["store_hits"] = float(getattr(machinery.values, "hits", 0))
        counts["policy_macs"] = counts["states_evaluated"] * macs(self.shape_of_policy, folded)
        if tf32_is_on():
            counts["tf32_products"] = counts["states_evaluated"]
        counts["kernel_rows"] = float(getattr(machinery.step.expand, "rows", 0))
        counts["selected_rows"] = float(getattr(machinery.step, "selected", 0))
        counts["fused_rows"] = float(getattr(machinery.policy, "fused_rows", 0))
        return {**counts, **self._compile_counts(), **self._ratios(counts)}

    def _compile_counts(self) -> dict[str, float]:
        step = self.step_function
        if not isinstance(step, CompiledStep):
            return {}
        return {
            "recompiles_after_warmup": step.after_warmup,
            "compiled_steps": step.calls,
            "recompile_s": step.compile_s / max(step.graphs, 1),
        }

    def _ratios(self, counts: Mapping[str, float]) -> dict[str, float]:
        machinery = self.machinery
        useful = max(counts["useful_row_steps"], 1.0)
        rows = self.task.slab or self._most_candidates
        return {
            "fact_pairs_per_step": counts["fact_pairs"] / useful,
            "padded_over_real": counts["states_padded"] / max(counts["states_real"], 1.0),
            "row_steps_over_useful": counts["row_steps"] / useful,
            "idle_share": 1 - useful / max(counts["row_steps"], useful),
            "derived_states_bytes": float(machinery.memory.derived_bytes(rows)),
            "raw_states_bytes": float(machinery.memory.raw_bytes(rows)),
            "predicted_bytes": float(machinery.memory.peak_bytes(rows)),
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

    def work(self) -> Work:
        """Of one candidate no formula exists: the length of its walk is a result."""
        return Work()

    def close(self) -> None:
        """Put the process's settings back."""
        self._endings.close()
