"""SPD: what is trained, measured and compared."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import Clock, Context, Evidence, Levels, Replayable, Work, Workload
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.products import products
from perfsweep.workloads.spd import declaration, upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.evaluation import Evaluation
from perfsweep.workloads.spd.evidence import Probe, exact_faithfulness
from perfsweep.workloads.spd.maths.importance import layer_shapes, products_of
from perfsweep.workloads.spd.maths.sites import Site
from perfsweep.workloads.spd.named_files import read, read_values
from perfsweep.workloads.spd.presets import LossSpec, Recipe, TargetSpec
from perfsweep.workloads.spd.reference import Reference
from perfsweep.workloads.spd.training.targets import Given, load_problem
from perfsweep.workloads.spd.variants import arm
from perfsweep.workloads.toggles import product_type
from perfsweep.workloads.training.checkpoints import write
from perfsweep.workloads.training.precision import set_tf32, tf32_is_on
from perfsweep.workloads.weight_files import write_safetensors

COUNTED = (
    *("iterations", "positions", "worker_batches", "row_fetches", "pinned_batches", "unwaited_copies"),
    *("prefetched_batches", "kept_batches", "hook_registrations", "weight_fetches", "masked_passes"),
    *("masked_modules", "pgd_passes", "softmax_rows", "held_bytes", "graph_replays", "native_products"),
    *("recorded_events", "profiled_steps", "traces"),
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
        """Products of one position by the formula of `flops_per_position`."""
        arm = self.arm
        if arm.spec.own:
            return Work()  # of which no sizes are known
        flops = flops_per_position(arm.sites, arm.spec, self.config.recipe, not arm.multiplies_deltas)
        return Work(flops, products=product_type(self.levels, self.config.dtype))

    def keep(self, folder: Path) -> None:
        """Write the decomposition, a checkpoint to go on from, upstream's form of it, and how good it is."""
        write_all(self.arm, folder)

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


@dataclass(frozen=True)
class Macs:
    """Multiply-adds of one position, see `flops_per_position`; `deltas` is of a whole iteration."""

    target: float
    importance: float
    forward: float
    backward: float
    inner: float
    deltas: float


def macs(sites: Sequence[Site], spec: TargetSpec, recipe: Recipe, folds: bool) -> Macs:
    """The formula's terms for a decomposition."""
    P = sum(site.d_in * site.d_out for site in sites)
    Q = sum(site.count * (site.d_in + site.d_out) for site in sites)
    E = 0 if folds else P
    head = 0 if spec.reads_vectors else spec.width * spec.vocab
    attention = 0 if spec.reads_vectors else spec.layers * recipe.seq * spec.width
    importance = _importance(sites, recipe)
    target = P + head + attention
    deltas = sum(site.d_in * site.d_out * site.count for site in sites)
    backward = P + head + 2 * attention
    return Macs(target, importance, target + Q + E, backward + 2 * (Q + E), backward + Q + E, 3 * deltas)


def _importance(sites: Sequence[Site], recipe: Recipe) -> int:
    if recipe.transformer is not None:
        return products_of(sites, recipe.transformer, recipe.hidden, recipe.seq)
    shapes = [shape for site in sites for shape, _, _ in layer_shapes(recipe.importance, site, recipe.hidden)]
    return sum(_product(shape) for shape in shapes)


def _product(shape: Sequence[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def passes_of(loss: LossSpec, modules: int) -> tuple[int, int]:
    """Masked passes with all gradients, and inner passes, of one term."""
    if loss.kind in ("faithfulness", "minimality"):
        return 0, 0
    times = modules if loss.kind.endswith("layerwise") else 1
    return times, times * (loss.steps if loss.adversarial or loss.persistent else 0)


def flops_per_position(sites: Sequence[Site], spec: TargetSpec, recipe: Recipe, folds: bool) -> float:
    """Floating-point operations of one iteration divided by its positions.

    With multiply-adds a token: P = sum of in*out, Q = sum of C (in + out), E = P for deltas (none when
    folded), h0 = d v for the head, A = layers * S * d for attention, G for importances:

        tgt = P + h0 + A;  f = tgt + Q + E;  b = P + 2Q + 2E + h0 + 2A;  bi = P + Q + E + h0 + 2A
        FLOP = 2 (T (tgt + 3G + passes (f + b) + inner (f + bi)) + 3 sum of in*out*C)
    """
    unit = macs(sites, spec, recipe, folds)
    outer = sum(passes_of(loss, len(sites))[0] for loss in recipe.losses)
    inner = sum(passes_of(loss, len(sites))[1] for loss in recipe.losses)
    each = (
        unit.target
        + 3 * unit.importance
        + outer * (unit.forward + unit.backward)
        + inner * (unit.forward + unit.inner)
    )
    return 2 * (each + unit.deltas / (recipe.batch * recipe.seq))


DECOMPOSITION, DESCRIPTION = "decomposition.safetensors", "decomposition.json"
CHECKPOINT, UPSTREAM = "checkpoint.pt", "upstream.pth"


def write_all(arm: Reference, folder: Path) -> None:
    """Write all files of a decomposition into an existing folder.

    ``decomposition.safetensors``  V, U and importance functions: ``components.X.V`` and the like
    ``decomposition.json``         modules and their sizes, forms, iterations done, configuration, figures on
                                   held-out rows
    ``checkpoint.pt``              everything that goes on, for ``workload.resume``
    ``upstream.pth``               the same values by upstream's names, with the frozen network's

    Raises
    ------
    ConfigError
        The folder cannot be written to.
    DivergedError
        A loss is no number: there is nothing worth keeping.
    """
    arm.check_losses()
    arm.writer.flush()
    decomposition = arm.decomposition
    values = {name: tensor.cpu() for name, tensor in decomposition.state().items()}
    try:
        write_safetensors(folder / DECOMPOSITION, values)
        write(arm.state(), folder / CHECKPOINT)
        theirs = upstream.exported(values, arm.target, arm.sites, decomposition.frequencies)
        write({name: tensor.cpu().contiguous() for name, tensor in theirs.items()}, folder / UPSTREAM)
        text = json.dumps(description(arm), indent=2)
        (folder / DESCRIPTION).write_text(text + "\n")
    except OSError as error:
        raise ConfigError(f"keep={folder} cannot be written to: {error.strerror or error}") from error


def description(arm: Reference) -> dict[str, Any]:
    """What the tensors are, as plain values."""
    recipe, config = arm.recipe, arm.config
    return {
        "iterations": arm.step,
        "modules": [
            {"name": site.name, "kind": site.kind, "in": site.d_in, "out": site.d_out, "C": site.count}
            for site in arm.sites
        ],
        "importance": recipe.importance,
        "hidden": list(recipe.hidden),
        "transformer": recipe.transformer and dataclasses.asdict(recipe.transformer),
        "upstream": upstream.COMMIT,
        "sigmoid": config.sigmoid,
        "configuration": _differing(config),
        "figures": {
            name: value for name, value in arm.evaluate(arm.step).items() if "ci_histogram" not in name
        },
    }


def _differing(config: SpdConfig) -> dict[str, Any]:
    """The fields that are not as they are by default, and the preset."""
    given = dataclasses.asdict(config)
    default = dataclasses.asdict(SpdConfig())
    return {name: value for name, value in given.items() if name == "preset" or value != default[name]}
