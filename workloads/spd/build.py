"""Puts a training together: each toggle's path is chosen here, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perfsweep.workloads.api import Context, Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.loading import (
    Feed,
    FeedAhead,
    Mover,
    Plan,
    by_data_loader,
    by_mapped_file,
    on_device,
)
from perfsweep.workloads.spd.data.rows import given_rows, load_rows
from perfsweep.workloads.spd.data.tokens import Rows
from perfsweep.workloads.spd.kernels import uniform
from perfsweep.workloads.spd.maths import losses, random_draws
from perfsweep.workloads.spd.maths.adversarial_search import (
    DetachedSearch,
    EverySteps,
    LargerSteps,
    PersistentSources,
    ScheduledSteps,
    Search,
    Steps,
)
from perfsweep.workloads.spd.maths.components import CachedDeltas, Deltas
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.divergence import CachedKl, Divergence, RecomputedKl, SquaredError
from perfsweep.workloads.spd.maths.masked_passes import Passes
from perfsweep.workloads.spd.maths.masked_products import CHECKS, UNMASKED
from perfsweep.workloads.spd.maths.objective import Functions, Objective
from perfsweep.workloads.spd.maths.patching import Patching, PersistentHooks, TemporaryHooks, Wrappers
from perfsweep.workloads.spd.maths.persistent_sources import KeptSources
from perfsweep.workloads.spd.maths.random_draws import Draws
from perfsweep.workloads.spd.maths.reconstruction import Reconstruction
from perfsweep.workloads.spd.maths.sites import Site, find_sites
from perfsweep.workloads.spd.maths.target import Target
from perfsweep.workloads.spd.maths.user_models import UserModel, try_out
from perfsweep.workloads.spd.presets import TargetSpec
from perfsweep.workloads.spd.training import compiled
from perfsweep.workloads.spd.training.checkpoints import read, read_values
from perfsweep.workloads.spd.training.collector import collector_for
from perfsweep.workloads.spd.training.evaluation import Evaluation
from perfsweep.workloads.spd.training.loop import Parts, Training
from perfsweep.workloads.spd.training.metrics import DeferredMetrics, EagerMetrics
from perfsweep.workloads.spd.training.profiling import profiler_for
from perfsweep.workloads.spd.training.targets import load_target
from perfsweep.workloads.spd.training.updates import Updates
from perfsweep.workloads.spd.training.written_gradients import FormulaTraining, NativeTraining
from perfsweep.workloads.training import precision
from perfsweep.workloads.training.checkpoints import WRITERS
from perfsweep.workloads.training.kept_batches import KeptBatches, repeated
from perfsweep.workloads.training.toggles import DATA

EVALUATION_SEED = 977
MASK_SEED = 7919  # apart from the seed of values and data


@dataclass(frozen=True)
class Given:
    """A network and its data that a program hands over, in the place of files.

    Attributes
    ----------
    module : in whose place components stand; it is frozen and moved, so hand over a copy
    data : token ids [n] or [n, S], or vectors [n, f]
    values : V, U and importance functions to begin with, by their own names or upstream's
    """

    module: nn.Module
    data: np.ndarray
    values: Mapping[str, Tensor] | None = None


@dataclass
class Builder:
    """One arm's choices and the parts that they lead to."""

    config: SpdConfig
    levels: Levels
    context: Context
    endings: ExitStack
    given: Given | None = None

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.device = torch.device(self.context.device.type)
        self.dtype = getattr(torch, self.config.dtype)
        self.recipe = self.config.recipe
        self.spec: TargetSpec = self.recipe.target
        self.sites: tuple[Site, ...] = ()

    def on(self, toggle: str, level: object = "on") -> bool:
        """Whether a toggle has a level."""
        return self.levels[toggle] == level

    def training(self) -> Training:
        """The whole training, ready for its first iteration.

        Raises
        ------
        ConfigError
            Data, target and configuration do not fit one another; nothing has been written by then.
        """
        precision.set_tf32(self.on("tf32"), self.endings)
        config, cache, given = self.config, self.context.cache_dir, self.given
        saved = read(Path(config.resume).expanduser()) if config.resume else None
        target, self.spec = load_target(
            config, cache, self.on("fused_target_ops"), given.module if given else None
        )
        self.sites = find_sites(target, self.recipe.modules)
        found = given_rows(given.data, config, self.spec) if given else load_rows(config, self.spec, cache)
        self.rows, self.held_out = found
        if isinstance(target, UserModel):
            try_out(target, self.sites, self._rows(self.rows.values[: self.recipe.batch]))
        feed = self._feed(self.rows, start=int(saved["taken"]) if saved else 0)
        target.to(self.device, self.dtype)
        decomposition = self._decomposition()
        objective = self._objective(target, decomposition)
        training = self._training(target, self._parts(target, decomposition, objective, feed))
        self._begin(training, saved)
        return training

    def _decomposition(self) -> Decomposition:
        stacked = self.on("stack_modules", "stacked")
        decomposition = Decomposition(
            self.sites, self.recipe, self.context.seed, self.dtype, stacked, self.config.sigmoid
        )
        decomposition.to(self.device)
        return decomposition

    def _begin(self, training: Training, saved: dict[str, Any] | None) -> None:
        if saved is not None:
            training.load(saved)
        elif (values := self._first_values(training.parts)) is not None:
            training.parts.decomposition.load(values)
        else:
            self._warm_up_faithfulness(training)
        if self.on("cuda_graph"):
            from perfsweep.workloads.spd.training.cuda_graph import Replay

            replay = Replay(training, self.counts)
            training.replace_advance(replay, replay.suspended)

    def _first_values(self, parts: Parts) -> Mapping[str, Tensor] | None:
        path, values = self.config.values_path, self.given.values if self.given else None
        if path is not None:
            values = read_values(Path(path).expanduser())
        if values is None:
            return None
        target, frequencies = parts.objective.patching.target, parts.decomposition.frequencies
        return upstream.from_any(values, self.recipe.importance, target, frequencies)

    def _training(self, target: Target, parts: Parts) -> Training:
        if self.on("gradients", "autograd"):
            return Training(parts)
        down, up = (target.get_submodule(site.name) for site in self.sites)
        form = NativeTraining if self.on("gradients", "native") else FormulaTraining
        return form(parts, (down.weight, up.weight), up.bias)  # type: ignore[arg-type]

    def _feed(self, rows: Rows, start: int) -> Feed:
        config = self.config
        plan = Plan(len(rows), self.recipe.batch, self.context.seed, config.drop_last)
        plan.start = start
        mover = Mover(self.device, self.on("non_blocking"), self.counts, self.dtype)
        batches = self._batches(rows, plan)
        if self.levels.get(DATA.name) == "cached":
            batches = repeated(batches, KeptBatches(lambda one: [one.values], self.counts))
        feed = (FeedAhead if self.on("prefetch", "stream") else Feed)(batches, mover, start)
        self.endings.callback(feed.close)
        return feed

    def restart_feed(self, parts: Parts, taken: int) -> None:
        """Go on with the batch after the first `taken` ones."""
        parts.feed.close()
        parts.feed = self._feed(self.rows, taken)

    def _batches(self, rows: Rows, plan: Plan) -> Any:
        pinned, workers = self.on("pin_memory"), int(self.levels["num_workers"])
        if self.on("loader", "gpu_resident"):
            return on_device(rows, plan, self.device)
        if self.on("loader", "memmap_batched"):
            return by_mapped_file(rows, plan, pinned)
        return by_data_loader(rows, plan, workers, pinned, self.config.iterable, self.config.sharded)

    def _patching(self, target: Target) -> Patching:
        check, unmasked = (
            CHECKS[str(self.levels["mask_checks"])],
            UNMASKED[str(self.levels["unmasked_form"])],
        )
        common = (target, self.sites, check, unmasked, self.counts)
        if self.on("patching", "wrapper"):
            recompute = self.on("grad_checkpointing", "per_block")
            return Wrappers(*common, folds=self.on("delta", "folded"), recompute=recompute)
        return (PersistentHooks if self.on("patching", "persistent_hooks") else TemporaryHooks)(*common)

    def _passes(self, patching: Patching) -> Passes:
        reuse, scope = self.on("prefix_reuse"), self.levels["compile"]
        if scope in compiled.PASSES and isinstance(patching, Wrappers):
            return compiled.CompiledPasses(patching, reuse)
        if scope == "breaks":
            patching.masked = compiled.compiled(patching.masked, fullgraph=False)  # type: ignore[method-assign]
        return Passes(patching, reuse, inside=self.on("component_kernel", "fused"))

    def _objective(self, target: Target, decomposition: Decomposition) -> Objective:
        patching = self._patching(target)
        self.endings.callback(patching.close)
        passes = self._passes(patching)
        order = self._execution_order(patching)
        reconstruction = self._reconstruction(decomposition, passes, order)
        functions = self._functions(patching, decomposition, passes)
        return Objective(
            self.recipe, decomposition, functions, reconstruction, self._divergence(), self.autocast()
        )

    def _reconstruction(
        self, decomposition: Decomposition, passes: Passes, order: list[str]
    ) -> Reconstruction:
        seed = self.context.seed * 2 + MASK_SEED
        draws = self.draws(decomposition, order, seed, self.config.frozen_draws)
        return Reconstruction(
            passes,
            draws,
            self._search(passes),
            self._steps(),
            [site.name for site in self.sites],
            binomial=self.config.sampling == "binomial",
            single=self.on("pgd_layerwise", "single"),
            gathers=self.on("routed_rows", "gathered"),
            kept=KeptSources(draws, self.recipe.steps),
        )

    def _execution_order(self, patching: Patching) -> list[str]:
        """Names in the order in which a pass meets the modules, found by looking at one."""
        probe = self._to_device(self.rows.values[:1])
        with torch.no_grad():
            _, inputs = patching.cached(probe)
        self.counts.clear()
        if missing := [site.name for site in self.sites if site.name not in inputs]:
            raise ConfigError(
                f"workload.modules: {missing[0]} is never called in a pass of the target, which reads its"
                " weight in another way; leave it out"
            )
        return list(inputs)

    def _to_device(self, values: np.ndarray) -> Tensor:
        rows = self._rows(values).to(self.device)
        return rows.to(self.dtype) if self.rows.vectors else rows

    def _rows(self, values: np.ndarray) -> Tensor:
        """Rows on the host: vectors float32, token ids int64."""
        return torch.from_numpy(np.array(values) if self.rows.vectors else values.astype(np.int64))

    def first_batch(self) -> Tensor:
        """The first rows of the data, a batch of them."""
        return self._to_device(self.rows.values[: self.recipe.batch])

    def draws(self, decomposition: Decomposition, order: Sequence[str], seed: int, frozen: bool) -> Draws:
        """Random numbers of this decomposition, from a generator of their own."""
        generator = torch.Generator(self.device).manual_seed(seed)
        canonical, batch = self.config.canonical_draws, self.recipe.batch
        filling = uniform.fill if self.on("draws", "native") else random_draws.fill
        groups = decomposition.groups
        delta = self.config.delta_component
        return Draws(
            self.sites, order, groups, generator, self.dtype, canonical, frozen, batch, filling, delta
        )

    def _search(self, passes: Passes) -> Search:
        detached = self.on("pgd_inner", "detached")
        return (DetachedSearch if detached else Search)(passes, self.counts, self.config.delta_component)

    def _steps(self) -> Steps:
        level = self.levels["pgd_steps"]
        if level == "schedule":
            return ScheduledSteps(self.recipe.steps)
        choices = {"n": Steps, "larger": LargerSteps, "every_k": EverySteps, "persistent": PersistentSources}
        return choices[str(level)]()

    def _functions(self, patching: Patching, decomposition: Decomposition, passes: Passes) -> Functions:
        scope = str(self.levels["compile"])
        functions = Functions(patching.cached, decomposition.importances)
        if scope == "full" and isinstance(passes, compiled.CompiledPasses):
            functions.importances = compiled.CompiledImportances(decomposition)
            names = [site.name for site in self.sites]
            functions.together = compiled.CompiledTerms(self.recipe.losses, self.recipe.beta, passes, names)
        if scope in compiled.TARGET:
            functions.target = compiled.compiled(patching.cached, fullgraph=scope == "full")
        if scope in compiled.LOSSES:
            functions.faithfulness = compiled.compiled(losses.faithfulness)
            functions.minimality = compiled.compiled(losses.minimality)
        if scope in compiled.IMPORTANCE:
            parts = decomposition.importance.children()
            for part in [function for group in parts for function in group.children()]:
                part.compile(dynamic=False)
        return functions

    def _divergence(self) -> Callable[[Tensor], Divergence]:
        counts, cached = self.counts, self.on("target_softmax", "cached")
        if self.spec.reads_vectors:
            return SquaredError
        return lambda logits: (CachedKl if cached else RecomputedKl)(logits, counts)

    def autocast(self) -> AbstractContextManager[Any]:
        """The arm's precision of products."""
        return precision.autocast(str(self.levels["amp"]), self.device)

    def _parts(self, target: Target, decomposition: Decomposition, objective: Objective, feed: Feed) -> Parts:
        levels, recipe = self.levels, self.recipe
        joined = compiled.CompiledDeltas if self.on("compile", "full") else Deltas
        deltas = (CachedDeltas if self.on("delta", "cached_w") else joined)(target, self.sites, self.counts)
        multiplies = self.config.delta_component and not self.on("delta", "folded")
        writer = WRITERS[str(levels["checkpoint"])]()
        self.endings.callback(writer.close)
        collector = collector_for(str(levels["gc"]))
        self.endings.callback(collector.close)
        profiler = profiler_for(str(levels["profiler"]), self.context.scratch_dir)
        self.endings.callback(profiler.close)
        constant_p = levels["compile"] in compiled.LOSSES or self.on("cuda_graph")
        return Parts(
            recipe=recipe,
            decomposition=decomposition,
            objective=objective,
            deltas=deltas,
            updates=self._updates(decomposition),
            feed=feed,
            metrics=DeferredMetrics() if self.on("metrics", "deferred") else EagerMetrics(),
            evaluate=self._evaluation(objective, deltas if multiplies else None).run,
            collector=collector,
            writer=writer,
            profiler=profiler,
            counts=self.counts,
            log=self.context.log,
            checkpoint_file=self.context.scratch_dir / "checkpoint.pt",
            microbatches=1 if self.on("micro_batch", "whole") else self.config.microbatches,
            multiplies_deltas=multiplies,
            p_tensor=torch.zeros((), dtype=self.dtype, device=self.device) if constant_p else None,
            frees_early=self.on("free_early"),
        )

    def _updates(self, decomposition: Decomposition) -> Updates:
        return Updates(
            self.recipe,
            decomposition.component_parameters(),
            decomposition.importance_parameters(),
            str(self.levels["optimizer"]),
            capturable=self.on("cuda_graph"),
            amp=str(self.levels["amp"]),
        )

    def _evaluation(self, objective: Objective, deltas: Deltas | None) -> Evaluation:
        decomposition = objective.decomposition
        draws = self.draws(decomposition, objective.reconstruction.draws.order, EVALUATION_SEED, frozen=False)
        evaluation = Evaluation(
            objective, objective.reconstruction.search, self._held_out_batches, draws, EVALUATION_SEED
        )
        if deltas is not None:
            evaluation.deltas = lambda: deltas.all(decomposition.operands())
        return evaluation

    def _held_out_batches(self) -> list[Tensor]:
        """The first held-out batches, which are few where rows are few."""
        size, values = self.recipe.batch, self.held_out.values
        count = min(self.recipe.eval_batches, max(len(values) // size, 1))
        return [self._to_device(values[i * size : (i + 1) * size]) for i in range(count)]

    def _warm_up_faithfulness(self, training: Training) -> None:
        """Bring V U close to W before training, by an optimiser of its own."""
        recipe, decomposition = self.recipe, training.parts.decomposition
        if not recipe.warmup_steps:
            return
        parameters = decomposition.component_parameters()
        optimizer = torch.optim.AdamW(parameters, lr=recipe.warmup_lr, weight_decay=recipe.warmup_decay)
        for _ in range(recipe.warmup_steps):
            loss = losses.faithfulness(training.parts.deltas.all(decomposition.operands()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
