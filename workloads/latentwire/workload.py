"""Training soft tokens for frozen language models: one encoder, several models, four losses.

One iteration is one optimiser step over the effective batch. Set-up (data, tokens, caches, models) is timed
apart.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.api import Clock, Context, Evidence, Levels, NullClock, Replayable, Work, Workload
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import checkpoint, facts, kept, presets
from perfsweep.workloads.latentwire import evidence as probes
from perfsweep.workloads.latentwire.build import Builder, groups_of, model_shapes
from perfsweep.workloads.latentwire.claims import CLAIMS
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.counters import COUNTED
from perfsweep.workloads.latentwire.data import cache
from perfsweep.workloads.latentwire.data.batches import Shape, Window
from perfsweep.workloads.latentwire.data.corpus import Corpus, layouts_for
from perfsweep.workloads.latentwire.given_files import check_files
from perfsweep.workloads.latentwire.maths.objective import Objective
from perfsweep.workloads.latentwire.toggles import CHECKS, TOGGLES, effective_batch
from perfsweep.workloads.latentwire.training import evaluate, moving
from perfsweep.workloads.latentwire.training.accumulate import Accumulator
from perfsweep.workloads.latentwire.training.metrics import Metrics
from perfsweep.workloads.latentwire.training.micro_batch import rows_that_fit
from perfsweep.workloads.latentwire.training.ranks import Ranks
from perfsweep.workloads.latentwire.training.sharding import check_shards, spread
from perfsweep.workloads.latentwire.training.teacher_caches import fill_caches
from perfsweep.workloads.latentwire.training.windows import Windows, window_shape
from perfsweep.workloads.products import products
from perfsweep.workloads.toggles import product_type
from perfsweep.workloads.training.toggles import DATA


class LatentWire(Workload):
    """Trains an encoder whose few latent vectors replace a text in the prompts of frozen language models.

    For those who compress prompts, for one model or several at once: accuracy against the text itself and
    against what is as short is scored. It gains by keeping what the teacher says, by passing prefixes shared
    and unpadded, and by narrower numbers where results stay in their bounds.

    Encoder, adapters and additions to the models are trained; the language models themselves stay frozen.
    """

    Config = LatentWireConfig
    toggles = TOGGLES
    on_request = (*Workload.on_request, DATA)
    claims = CLAIMS
    checks = CHECKS
    shape = "steps"
    unit = "example"
    paths = ("resume",)
    data_phases = ("data_wait",)

    @classmethod
    def configured(cls, config: LatentWireConfig) -> type[Workload]:
        """The workload, with the preset's batch as the baseline of `effective_batch`."""
        own = effective_batch(config.sizes.batch)
        toggles = tuple(own if toggle.name == own.name else toggle for toggle in cls.toggles)
        return type(cls.__name__, (cls,), {"__module__": cls.__module__, "toggles": toggles})

    @classmethod
    def planned(cls, config: LatentWireConfig) -> LatentWireConfig:
        """The configuration with files and folders from the root, for trials that start elsewhere.

        Raises
        ------
        ConfigError
            One of them cannot be used.
        """
        check_files(config)
        return config.absolute()

    def __init__(self) -> None:
        self._endings = contextlib.ExitStack()

    def setup(self, config: LatentWireConfig, levels: Levels, context: Context) -> None:
        """Build everything, and choose each toggle's path.

        Raises
        ------
        ConfigError
            Data, models or memory do not allow this training.
        """
        self._config, self._levels, self._context = config, levels, context
        self._counts = Counter[str]()
        self._clock: Clock = NullClock()
        self._ranks = Ranks(str(levels["parallel"]), context.rank, context.world, context.local_rank)
        self._device = self._ranks.device(context.device.type)
        self._step = 0
        self._products = products(levels["products"], self._endings, self._counts)
        self._build()
        self._shape = self._shape_of_windows()
        self._windows = Windows(
            self._corpus, self._shape, levels, self._device, self._wants_prompts, self._counts
        )
        self._endings.callback(self._windows.close)
        self._fill_teacher_caches()
        self._spread_models()
        self._probe: dict[str, Tensor] = {}
        if config.resume is None:
            self._start_loading()
        else:
            self._resume(Path(config.resume))
        self._periodic()

    def _build(self) -> None:
        config, levels, context = self._config, self._levels, self._context
        builder = Builder(config, levels, self._device, self._counts, context.cache_dir)
        shapes = model_shapes(config)
        layouts = layouts_for(config, shapes, context.cache_dir)
        self._corpus = Corpus(config, layouts, str(levels["tokenise"]), context.cache_dir)
        encoder, trained = builder.trainables(shapes, context.seed)
        own = self._ranks.own_models(len(shapes))
        parts = zip(shapes, trained, layouts, strict=True)
        models = {
            number: builder.model(number, shape, of_model, layout, self._corpus)
            for number, (shape, of_model, layout) in enumerate(parts)
            if number in own
        }
        share = 1 / self._ranks.world if self._ranks.splits_rows else 1.0
        self._objective = Objective(encoder, models, len(shapes), builder.options, self._counts, share)
        self._layouts, self._trained, self._fingerprints = layouts, trained, builder.fingerprints
        self._updates = builder.updates(groups_of(encoder, trained), self._training_steps)
        self._accumulator = Accumulator(self._objective, self._updates, builder.form(), self._counts)

    @property
    def _training_steps(self) -> int:
        """Optimiser steps of a whole training."""
        return math.ceil(len(self._corpus) / int(self._levels["effective_batch"])) * self._config.epochs

    def _shape_of_windows(self) -> Shape:
        dtype = self._objective.encoder.pooler.queries.dtype
        shape = window_shape(self._config, self._levels, self._ranks, len(self._corpus), dtype)
        return shape.with_micro(self._rows_at_a_time(shape))

    def _rows_at_a_time(self, shape: Shape) -> int:
        level = self._levels["micro_batch"]
        if level != "auto":
            return int(level)
        own = self._config.memory_mb
        limits = (self._context.memory_budget, None if own is None else own * 2**20)
        budget = min((limit for limit in limits if limit is not None), default=None)
        return self._ranks.least(rows_that_fit(self._corpus, shape, self._attempt, self._device, budget))

    def _attempt(self, window: Window) -> None:
        """Gradients of a window on the host, which leave no trace."""
        self._accumulator.once(moving.Mover(self._device, False, False, Counter())(window), self._phase)
        self._counts.clear()

    def _wants_prompts(self) -> bool:
        caches = [model.teacher.cache for model in self._objective.models.values()]
        return any(cache is None or not cache.complete for cache in caches)

    def _fill_teacher_caches(self) -> None:
        """Compute what the teachers' caches lack, unless the first epoch is to pay for it."""
        if self._config.teacher_fill == "lazy" or not str(self._levels["teacher"]).startswith("cache"):
            return
        fill_caches(self._objective, self._corpus, self._shape, self._device)
        self._counts.clear()

    def _spread_models(self) -> None:
        """Over several GPUs or ranks; last, as filling a cache waits for others and must not gather."""
        if self._levels["parallel"] == "fsdp" and self._ranks.world > 1:
            check_shards(self._config, self._shape, len(self._corpus), self._ranks.world)
        for model in self._objective.models.values():
            spread(model.lm, str(self._levels["parallel"]), self._ranks, self._counts)

    def _start_loading(self) -> None:
        self._windows.start(self._context.seed, self._step)

    def _periodic(self) -> None:
        config, levels = self._config, self._levels
        late = levels["sync"] == "late"
        self._metrics = Metrics(
            late, config.log_every, self._device, self._shape.dtype, self._context.log, self._counts
        )
        self._endings.callback(self._metrics.flush)
        periods = [config.log_every, config.eval_every or 1]
        if levels["empty_cache"] == "epoch":
            periods.append(self._windows.per_epoch)
        self.cadence = math.lcm(*periods)
        self._lm_bytes = sum(model.lm.stored_bytes() for model in self._objective.models.values())

    def _phase(self, name: str) -> AbstractContextManager[Any]:
        return self._clock.phase(name)

    def step(self, clock: Clock) -> None:
        """One optimiser step over one window, and the periodic work that is due."""
        self._clock = clock
        self._mark_step()
        started = time.perf_counter()
        with clock.phase("data_wait"):
            window = next(self._windows)
        waited = time.perf_counter() - started
        with self._products:
            terms = self._accumulator.window(window, self._phase)
        with clock.phase("optim"):
            self._ranks.add_up(self._updates.parameters, self._counts)
            norm = self._updates.apply()
        with clock.phase("log"):
            values = self._logged(self._ranks.total(terms), norm)
            host = {"batch_ms": (time.perf_counter() - started) * 1e3, "data_wait_ms": waited * 1e3}
            self._metrics.push(values, {**host, "examples": float(window.examples)})
        self._step += 1
        self._count_step(window)
        self._release_cache()
        if self._config.eval_every and self._step % self._config.eval_every == 0:
            with clock.phase("evaluate"):
                self._greedy()
        self._clock = NullClock()

    def _mark_step(self) -> None:
        """Nothing that graphs of the last step wrote is read any more: replays may overwrite it."""
        if self._levels["compile"] == "reduce_overhead":
            torch.compiler.cudagraph_mark_step_begin()

    def _logged(self, terms: Tensor, norm: Tensor) -> Tensor:
        """Terms, gradient norm and skipped steps in one vector: one copy brings them to the host."""
        own = (value.reshape(1).to(terms.dtype) for value in (norm, self._updates.skipped))
        return torch.cat((terms, *own))

    def _count_step(self, window: Window) -> None:
        counts = self._counts
        counts["examples"] += window.examples
        counts["examples_per_step"] += window.examples
        counts["worker_rows_tokenised"] += window.tokenised if counts["worker_batches"] else 0
        counts["lm_bytes"] += self._lm_bytes
        counts["ranks"] += self._ranks.world
        counts["devices_used"] += len(
            {p.device for model in self._objective.models.values() for p in model.lm.parameters()}
        )

    def _release_cache(self) -> None:
        level = self._levels["empty_cache"]
        if level == "step" or (level == "epoch" and self._step % self._windows.per_epoch == 0):
            torch.cuda.empty_cache()
            self._counts["cache_releases"] += 1

    def progress(self) -> float:
        """Examples of all ranks trained on since `setup`."""
        return float(self._counts["examples"])

    def _greedy(self) -> dict[int, tuple[Tensor, Tensor]]:
        batched = self._levels["decode"] == "batched"
        return probes.greedy_answers(
            self._objective, self._layouts, self._corpus, self._config, self._shape.trim, batched
        )

    def evaluate(self, max_new: int) -> list[evaluate.Score]:
        """Answers of every arm to the held-out examples."""
        batched = self._levels["decode"] == "batched"
        return evaluate.evaluate(self._objective, self._layouts, self._corpus.held_out, max_new, batched)

    def prepare_evidence(self) -> None:
        """Terms and gradient of one window of fixed rows along this arm's path, at the initial parameters."""
        counts = Counter(self._counts)
        with self._products:
            self._probe = self._probe_gradient()
        self._counts.clear()
        self._counts.update(counts)

    def _probe_gradient(self) -> dict[str, Tensor]:
        numbers = list(range(min(self._config.sizes.probe_rows, len(self._corpus))))
        return probes.probe_gradient(
            self._windows.of(numbers),
            self._accumulator,
            self._objective,
            self._updates,
            self._ranks,
            self._phase,
        )

    def numbers(self) -> dict[str, float]:
        """The last loss, and the norm of everything that is trained."""
        self._metrics.flush()
        trained = [p.detach().double().norm() for group in self._updates.groups.values() for p in group]
        return {
            "last_loss": self._metrics.history[-1] if self._metrics.history else math.nan,
            "parameter_norm": torch.stack(trained).norm().item(),
        }

    def evidence(self) -> Evidence:
        """The probe's terms and gradient, the losses so far, greedy answers and a few numbers."""
        self._metrics.flush()
        caches = [model.teacher.cache for model in self._objective.models.values()]
        numbers = {
            "examples": self.progress(),
            "skipped": float(self._updates.skipped.item()),
            "excluded_examples": float(self._corpus.excluded),
            "rows_chosen": float(self._shape.micro),
            "training_steps": float(self._training_steps),
            "oom_deaths": 0.0,  # a trial that dies leaves no evidence
            "teacher_build_s": sum(cache.cost() for cache in caches if cache is not None),
        }
        numbers |= probes.attention_speedup(
            self._config, self._levels, self._layouts, self._shape, self._device
        )
        losses = torch.tensor(list(self._metrics.history), dtype=self._shape.dtype)
        ids, close = (torch.cat(parts) for parts in zip(*self._ranks.gathered(self._greedy()), strict=True))
        return Evidence({**self._probe, "losses": losses, "greedy_ids": ids, "greedy_close": close}, numbers)

    def counters(self) -> Mapping[str, float]:
        """Counts since `setup`, made where the work is done."""
        found = {name: float(self._counts[name]) for name in COUNTED}
        # Loader workers count in their own processes and send the figure along.
        found["rows_tokenised"] = float(
            self._corpus.counts["rows_tokenised"] + self._counts["worker_rows_tokenised"]
        )
        found["oom_deaths"] = 0.0
        return found

    def work(self) -> Work:
        """Least products for one example, over all models: one pruned pass, and a teacher that is there."""
        sizes = self._config.sizes
        parts = zip(model_shapes(self._config), self._layouts, strict=True)
        return Work(
            flops=sum(
                presets.fast_flops(lm, layout.prefix, sizes.answer_tokens, sizes.early_tokens)
                for lm, layout in parts
            ),
            products="half"
            if self._levels["lm_dtype"] == "bf16"
            else product_type(self._levels, self._config.dtype),
        )

    def data_digest(self) -> str:
        """SHA-256 over all examples, what their ids depend on, local models and where training begins."""
        keys = [self._corpus.digest(), *(self._corpus.key(m) for m in range(len(self._layouts)))]
        if self._config.lm_path is not None:
            keys += [*self._fingerprints.values(), cache.key_of(*model_shapes(self._config))]
        if self._config.resume is not None:
            keys.append(checkpoint.digest(Path(self._config.resume)))
        return "-".join(keys)

    def state_dict(self) -> dict[str, Any]:
        """What a training needs to go on where it stopped."""
        modules = [self._objective.encoder, *self._trained]
        return {
            "step": self._step,
            "modules": [
                {name: value.clone() for name, value in module.state_dict().items()} for module in modules
            ],
            "updates": copy.deepcopy(
                self._updates.state_dict()
            ),  # an optimizer's state goes on changing in place
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._step = state["step"]
        for module, values in zip([self._objective.encoder, *self._trained], state["modules"], strict=True):
            module.load_state_dict(values)
        self._updates.load_state_dict(state["updates"])
        torch.set_rng_state(state["random"])
        self._start_loading()

    def keep(self, folder: Path) -> None:
        """Write a checkpoint, losses, scores and answers on held-out examples, and additions for PEFT.

        Raises
        ------
        ConfigError
            The folder cannot be written, or no rank has all that is trained.
        """
        if self._levels["parallel"] == "model_per_gpu":
            raise ConfigError(
                "toggles.parallel=model_per_gpu leaves no rank with all adapters; use single to keep"
            )
        self._metrics.flush()
        scores = self.evaluate(self._config.max_new)
        if self._context.rank:
            return
        first = self._step - len(self._metrics.history) + 1
        losses = dict(enumerate(self._metrics.history, first))
        kept.write_results(folder, losses, scores, self._corpus.held_out)
        models = facts.of_models(self._objective.models, self._layouts, self._config.lm_folders)
        about = {**self._facts(), "models": models}
        checkpoint.write(folder / "checkpoint", self._modules(), self.state_dict(), about)
        kept.write_additions(folder, self._trained, self._config)

    def _modules(self) -> dict[str, nn.Module]:
        return checkpoint.modules_of(self._objective.encoder, self._trained)

    def _resume(self, folder: Path) -> None:
        groups = self._updates.optimizer.state_dict()["param_groups"]
        self.load_state_dict(checkpoint.resume(folder, self._modules(), self._facts(), groups))

    def _facts(self) -> dict[str, Any]:
        order = [self._context.seed, self._shape.effective, self._shape.bucket]
        data = [self._corpus.key(number) for number in range(len(self._layouts))]
        return facts.of_training(self._config, self._fingerprints, data, order)

    def replayable(self) -> Replayable:
        """What parity replays single iterations with."""
        groups = self._updates.groups.items()
        named = {f"{name}.{number}": p for name, group in groups for number, p in enumerate(group)}
        return Replayable(named, self._updates.optimizer, self.state_dict, self.load_state_dict)

    def close(self) -> None:
        """Hand over the last metrics and end loader processes."""
        self._endings.close()
