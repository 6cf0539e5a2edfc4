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
from perfsweep.workloads.latentwire import checkpoint, declaration, kept, presets
from perfsweep.workloads.latentwire import evidence as probes
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.counters import COUNTED
from perfsweep.workloads.latentwire.data import cache
from perfsweep.workloads.latentwire.data.batches import Window
from perfsweep.workloads.latentwire.maths.frozen import model_shapes
from perfsweep.workloads.latentwire.scores import Score, evaluate
from perfsweep.workloads.latentwire.variants import arm
from perfsweep.workloads.toggles import product_type


class LatentWire(declaration.LatentWire, Workload):
    """A training; see what it declares."""

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
        self._clock: Clock = NullClock()
        self._step = 0
        self._probe: dict[str, Tensor] = {}
        self.arm = arm(levels)(config, levels, context, self._phase)
        self._counts = self.arm.counts
        self._products = self.arm.products(self._endings)
        self.arm.build()
        self._endings.callback(self.arm.close)
        if config.resume is None:
            self.arm.start(self._step)
        else:
            self._resume(Path(config.resume))
        self.cadence = math.lcm(*self.arm.periods())
        self._lm_bytes = sum(model.lm.stored_bytes() for model in self.arm.models.values())

    def _phase(self, name: str) -> AbstractContextManager[Any]:
        return self._clock.phase(name)

    def step(self, clock: Clock) -> None:
        """One optimiser step over one window, and the periodic work that is due."""
        self._clock = clock
        self.arm.mark_step()
        started = time.perf_counter()
        with clock.phase("data_wait"):
            window = next(self.arm.loading)
        waited = time.perf_counter() - started
        with self._products:
            terms = self.arm.gradients(window)
        with clock.phase("optim"):
            self.arm.add_up()
            norm = self.arm.apply()
        with clock.phase("log"):
            values = self._logged(self.arm.total(terms), norm)
            host = {"batch_ms": (time.perf_counter() - started) * 1e3, "data_wait_ms": waited * 1e3}
            self.arm.push(values, {**host, "examples": float(window.examples)})
        self._step += 1
        self._count_step(window)
        self.arm.release(self._step)
        if self._config.eval_every and self._step % self._config.eval_every == 0:
            with clock.phase("evaluate"):
                probes.greedy_answers(self.arm)
        self._clock = NullClock()

    def _logged(self, terms: Tensor, norm: Tensor) -> Tensor:
        """Terms, gradient norm and skipped steps in one vector: one copy brings them to the host."""
        own = (value.reshape(1).to(terms.dtype) for value in (norm, self.arm.skipped))
        return torch.cat((terms, *own))

    def _count_step(self, window: Window) -> None:
        counts = self._counts
        counts["examples"] += window.examples
        counts["examples_per_step"] += window.examples
        counts["worker_rows_tokenised"] += window.tokenised if counts["worker_batches"] else 0
        counts["lm_bytes"] += self._lm_bytes
        counts["ranks"] += self._context.world
        counts["devices_used"] += len(
            {p.device for model in self.arm.models.values() for p in model.lm.parameters()}
        )

    def progress(self) -> float:
        """Examples of all ranks trained on since `setup`."""
        return float(self._counts["examples"])

    def evaluate(self, max_new: int) -> list[Score]:
        """Answers of every arm to the held-out examples."""
        return evaluate(self.arm, self.arm.corpus.held_out, max_new)

    def prepare_evidence(self) -> None:
        """Terms and gradient of one window of fixed rows along this arm's path, at the initial parameters."""
        counts = Counter(self._counts)
        with self._products:
            self._probe = self._probe_gradient()
        self._counts.clear()
        self._counts.update(counts)

    def _probe_gradient(self) -> dict[str, Tensor]:
        rows = min(self._config.sizes.probe_rows, len(self.arm.corpus))
        return probes.probe_gradient(self.arm, self.arm.window_of(list(range(rows))))

    def numbers(self) -> dict[str, float]:
        """The last loss, and the norm of everything that is trained."""
        self.arm.flush()
        trained = [p.detach().double().norm() for group in self.arm.groups.values() for p in group]
        return {
            "last_loss": self.arm.history[-1] if self.arm.history else math.nan,
            "parameter_norm": torch.stack(trained).norm().item(),
        }

    def evidence(self) -> Evidence:
        """The probe's terms and gradient, the losses so far, greedy answers and a few numbers."""
        self.arm.flush()
        numbers = {
            "examples": self.progress(),
            "skipped": float(self.arm.skipped.item()),
            "excluded_examples": float(self.arm.corpus.excluded),
            "rows_chosen": float(self.arm.shape.micro),
            "training_steps": float(self.arm.training_steps),
            "oom_deaths": 0.0,  # a trial that dies leaves no evidence
            "teacher_build_s": self.arm.teachers_cost(),
        }
        numbers |= probes.attention_speedup(self.arm)
        losses = torch.tensor(list(self.arm.history), dtype=self.arm.shape.dtype)
        answers = self.arm.gathered(probes.greedy_answers(self.arm))
        ids, close = (torch.cat(parts) for parts in zip(*answers, strict=True))
        return Evidence({**self._probe, "losses": losses, "greedy_ids": ids, "greedy_close": close}, numbers)

    def counters(self) -> Mapping[str, float]:
        """Counts since `setup`, made where the work is done."""
        found = {name: float(self._counts[name]) for name in COUNTED}
        # Loader workers count in their own processes and send the figure along.
        found["rows_tokenised"] = float(
            self.arm.corpus.counts["rows_tokenised"] + self._counts["worker_rows_tokenised"]
        )
        found["oom_deaths"] = 0.0
        return found

    def work(self) -> Work:
        """Least products for one example, over all models: one pruned pass, and a teacher that is there."""
        sizes = self._config.sizes
        parts = zip(model_shapes(self._config), self.arm.layouts, strict=True)
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
        keys = [self.arm.corpus.digest(), *(self.arm.corpus.key(m) for m in range(len(self.arm.layouts)))]
        if self._config.lm_path is not None:
            keys += [*self.arm.fingerprints.values(), cache.key_of(*model_shapes(self._config))]
        if self._config.resume is not None:
            keys.append(checkpoint.digest(Path(self._config.resume)))
        return "-".join(keys)

    def state_dict(self) -> dict[str, Any]:
        """What a training needs to go on where it stopped."""
        modules = [self.arm.encoder, *self.arm.trained]
        return {
            "step": self._step,
            "modules": [
                {name: value.clone() for name, value in module.state_dict().items()} for module in modules
            ],
            "updates": copy.deepcopy(
                self.arm.updates_state()
            ),  # an optimizer's state goes on changing in place
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._step = state["step"]
        for module, values in zip([self.arm.encoder, *self.arm.trained], state["modules"], strict=True):
            module.load_state_dict(values)
        self.arm.load_updates(state["updates"])
        torch.set_rng_state(state["random"])
        self.arm.start(self._step)

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
        self.arm.flush()
        scores = self.evaluate(self._config.max_new)
        if self._context.rank:
            return
        first = self._step - len(self.arm.history) + 1
        losses = dict(enumerate(self.arm.history, first))
        kept.write_results(folder, losses, scores, self.arm.corpus.held_out)
        models = checkpoint.facts_of_models(self.arm.models, self.arm.layouts, self._config.lm_folders)
        about = {**self._facts(), "models": models}
        checkpoint.write(folder / "checkpoint", self._modules(), self.state_dict(), about)
        kept.write_additions(folder, self.arm.trained, self._config)

    def _modules(self) -> dict[str, nn.Module]:
        return checkpoint.modules_of(self.arm.encoder, self.arm.trained)

    def _resume(self, folder: Path) -> None:
        groups = self.arm.optimizer.state_dict()["param_groups"]
        self.load_state_dict(checkpoint.resume(folder, self._modules(), self._facts(), groups))

    def _facts(self) -> dict[str, Any]:
        order = [self._context.seed, self.arm.shape.effective, self.arm.shape.bucket]
        data = [self.arm.corpus.key(number) for number in range(len(self.arm.layouts))]
        return checkpoint.facts_of_training(self._config, self.arm.fingerprints, data, order)

    def replayable(self) -> Replayable:
        """What parity replays single iterations with."""
        groups = self.arm.groups.items()
        named = {f"{name}.{number}": p for name, group in groups for number, p in enumerate(group)}
        return Replayable(named, self.arm.optimizer, self.state_dict, self.load_state_dict)

    def close(self) -> None:
        """Hand over the last metrics and end loader processes."""
        self._endings.close()
