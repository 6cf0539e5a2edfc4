"""SPD: what is trained, measured and compared."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import Clock, Context, Evidence, Levels, Replayable, Work, Workload
from perfsweep.workloads.products import products
from perfsweep.workloads.spd import declaration, kept, upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.cost import flops_per_position
from perfsweep.workloads.spd.evaluation import Evaluation
from perfsweep.workloads.spd.evidence import Probe, exact_faithfulness
from perfsweep.workloads.spd.training.checkpoints import read, read_values
from perfsweep.workloads.spd.training.targets import Given, load_problem
from perfsweep.workloads.spd.variants import arm
from perfsweep.workloads.toggles import product_type
from perfsweep.workloads.training.precision import set_tf32, tf32_is_on

COUNTED = (
    "iterations",
    "positions",
    "worker_batches",
    "row_fetches",
    "pinned_batches",
    "unwaited_copies",
    "prefetched_batches",
    "kept_batches",
    "hook_registrations",
    "weight_fetches",
    "masked_passes",
    "masked_modules",
    "pgd_passes",
    "softmax_rows",
    "held_bytes",
    "graph_replays",
    "native_products",
    "recorded_events",
    "profiled_steps",
    "traces",
)
"""Names of the counts that trials record, zero where nothing happened. Code paths add where they do the work:
a path not taken counts nothing."""


class Spd(declaration.Spd, Workload):
    """One iteration: load, target, importances and every term, backward, update; then what is due."""

    def __init__(self, given: Given | None = None) -> None:
        self._given = given
        # Whatever must end says so once it has started, so that `close` is right after half a setup too.
        self._endings = contextlib.ExitStack()

    def setup(self, config: SpdConfig, levels: Levels, context: Context) -> None:
        """Build everything, and choose each toggle's path.

        Raises
        ------
        ConfigError
            The configuration, the data and the target do not fit one another.
        """
        self.config, self.levels, self.context = config, levels, context
        reference = arm(levels)
        set_tf32(reference.tf32, self._endings)
        saved = read(Path(config.resume).expanduser()) if config.resume else None
        taken = int(saved["taken"]) if saved else 0
        problem = load_problem(config, context.cache_dir, reference.fused_target, self._given, taken)
        self.arm = reference(levels, config, context, problem, self._endings)
        self._products = products(levels["products"], self._endings, self.arm.counts)
        self.arm.evaluate = Evaluation(self.arm).run
        self.arm.begin(saved, None if saved else self._first_values())
        recipe = config.recipe
        periods = recipe.log_every, recipe.eval_every * (self.arm.collector.every or 1), recipe.save_every
        self.cadence = math.lcm(*filter(None, periods))  # 0 is never
        self.length = max(0, recipe.steps - self.arm.step)  # of one that goes on: what is left
        self._totals: list[Tensor] = []
        self._probe: Probe | None = None
        self.arm.counts.clear()

    def _first_values(self) -> Mapping[str, Tensor] | None:
        path, values = self.config.values_path, self._given.values if self._given else None
        if path is not None:
            values = read_values(Path(path).expanduser())
        if values is None:
            return None
        frequencies = self.arm.decomposition.frequencies
        return upstream.from_any(values, self.config.recipe.importance, self.arm.target, frequencies)

    def prepare_evidence(self) -> None:
        """Gradients and terms of the first rows, at the initial values."""
        with self._products:
            self._probe = Probe.of(self.arm, self.arm.first_batch())
        self.arm.counts.clear()

    def step(self, clock: Clock) -> None:
        """One iteration."""
        with self._products:
            self.arm.iterate(clock)
        if self._probe is not None:
            self._totals.append(self.arm.total.detach().clone())

    def progress(self) -> float:
        """Positions trained on since `setup`."""
        return float(self.arm.counts["positions"])

    def numbers(self) -> dict[str, float]:
        """The last loss.

        Raises
        ------
        DivergedError
            A loss is no number: there is nothing to judge.
        """
        self.arm.check_losses()
        return {"last_loss": float(self.arm.total)}

    def evidence(self) -> Evidence:
        """Losses, gradients and divergences, and figures of the training."""
        numbers = {
            "positions": self.progress(),
            "exact_faithfulness": exact_faithfulness(self.arm.device, self.arm.autocast),
            "pgd_steps": float(max((loss.steps for loss in self.config.recipe.losses), default=0)),
        }
        losses = torch.stack(self._totals).to(self.arm.dtype).cpu() if self._totals else torch.zeros(0)
        if self._probe is None:
            return Evidence({"losses": losses}, numbers)
        return Evidence({"losses": losses, **self._probe.tensors()}, {**numbers, **self._probe.numbers()})

    def counters(self) -> Mapping[str, float]:
        """Counts since `setup`, made where the work is done and not where a level is read."""
        arm, counts = self.arm, self.arm.counts
        arm.writer.flush()
        return {
            **{name: float(counts[name]) for name in COUNTED},
            "tf32_products": float(counts["iterations"] if tf32_is_on() else 0),
            "collections": float(arm.collector.runs),
            "evaluations": float(arm.collector.evaluations),
            "background_saves": float(arm.writer.in_background),
        }

    def uncaptured(self) -> contextlib.AbstractContextManager[None]:
        """Iterations are done eagerly meanwhile, whatever level `cuda_graph` has."""
        return self.arm.uncaptured()

    def work(self) -> Work:
        """Products of one position by the formula of `cost`."""
        arm = self.arm
        if arm.spec.own:
            return Work()  # of which no sizes are known
        flops = flops_per_position(arm.sites, arm.spec, self.config.recipe, not arm.multiplies_deltas)
        return Work(flops, products=product_type(self.levels, self.config.dtype))

    def keep(self, folder: Path) -> None:
        """Write the decomposition, a checkpoint to go on from, upstream's form of it, and how good it is."""
        kept.write_all(self.arm, folder)

    def data_digest(self) -> str:
        """Identity of the training rows."""
        return self.arm.rows.digest

    def state_dict(self) -> dict[str, Any]:
        """What a training needs to go on where it stopped."""
        return self.arm.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken, the data included."""
        self.arm.load(state)
        self.arm.restart_feed(int(state["taken"]))

    def replayable(self) -> Replayable | None:
        """What parity replays single iterations with; None where sources are searched for.

        A search follows signs, and rounding flips a few of them: an iteration would be replayed with other
        sources.
        """
        if any(loss.steps or loss.persistent for loss in self.config.recipe.losses):
            return None
        named = self.arm.decomposition.named_parameters()
        return Replayable(named, self.arm.updates.optimizer, self.state_dict, self.load_state_dict)

    def close(self) -> None:
        """End workers, writer, profiler; restore the process's settings; raise the writer's last error."""
        self._endings.close()
