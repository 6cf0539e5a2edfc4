"""Whether a decomposition finds the features of a toy whose answer is known.

``python -m workloads.spd.oracle.recover --seeds 0 1 2`` trains the recipe ``tms_5-2_test`` and prints how far
each seed is from one subcomponent for each feature. Values to begin with decide whether two features that
point nearly opposite ways end up in one subcomponent; it costs more loss than keeping them apart, so of
several seeds the one with the lowest loss is believed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workloads.api import Context, Device, LevelValue, NullClock
from workloads.errors import PerfsweepError
from workloads.native import compiler_here
from workloads.spd.config import SpdConfig
from workloads.spd.toggles import TOGGLES
from workloads.spd.training.evaluation import WRONG, ci_errors, one_feature_importances
from workloads.spd.workload import Spd

PRESET = "tms_5-2_test"
QUIET = 10**6  # iterations between logging, evaluations and saves: none
# share of iterations, the last ones, whose mean loss tells seeds apart: by then the learning rate is nearly
# zero
LAST = 0.1
FAST: dict[str, LevelValue] = {
    "patching": "wrapper",
    "delta": "folded",
    "stack_modules": "stacked",
    "metrics": "deferred",
    "mask_checks": "off",
    "optimizer": "fused",
    "loader": "memmap_batched",
    "gradients": "native" if compiler_here() else "formulas",
}


@dataclass(frozen=True)
class Recovery:
    """How a decomposition stands to the toy's own columns.

    Attributes
    ----------
    ci_errors : importances of single features that are off by more than 0.1
    distinct : different subcomponents that the features use, of each module
    most_active : the most subcomponents that one feature uses, of each module
    cosine : of the worst feature, between its row of its subcomponent and its true column
    low, high : smallest and largest ratio of the two norms
    elsewhere : largest share of a subcomponent's energy that lies on other features
    """

    ci_errors: int
    distinct: tuple[int, int]
    most_active: tuple[int, int]
    cosine: float
    low: float
    high: float
    elsewhere: float

    @property
    def found(self) -> bool:
        """Whether each feature has a subcomponent of its own, in its own direction; the second module's may
        be shared."""
        alone = self.ci_errors == 0 and self.distinct[1] >= 3 and self.most_active[1] <= 2
        return alone and self.cosine > 0.99 and self.low >= 0.9 and self.high <= 1.1 and self.elsewhere < 0.02

    def __str__(self) -> str:
        return (
            f"{_word(self)}: {self.ci_errors} importances off, "
            f"{self.distinct[0]} and {self.distinct[1]} distinct subcomponents, cosine >= {self.cosine:.4f}, "
            f"norm ratio {self.low:.3f} to {self.high:.3f}, energy elsewhere <= {100 * self.elsewhere:.2f} %"
        )


def _word(recovery: Recovery) -> str:
    return "found" if recovery.found else "NOT FOUND"


def judge(importances: Mapping[str, np.ndarray], V: Tensor, U: Tensor, columns: Tensor) -> Recovery:
    """Figures of a decomposition.

    Parameters
    ----------
    importances : [f, C] of both modules, of one feature at a time
    V, U : of the first module, [f, C] and [C, d]
    columns : what each feature is in the target [f, d]
    """
    used = {name: ci.argmax(1) for name, ci in importances.items()}
    active = [int((importances[name] > WRONG).sum(1).max()) for name in ("linear1", "linear2")]
    outer = torch.stack([torch.outer(V[:, c], U[c]) for c in used["linear1"].tolist()])  # [f, f, d]
    own = outer.diagonal(dim1=0, dim2=1).T
    ratios = own.norm(dim=1) / columns.norm(dim=1)
    elsewhere = 1 - own.square().sum(1) / outer.square().sum((1, 2))
    return Recovery(
        ci_errors(importances["linear1"]),
        (len(set(used["linear1"].tolist())), len(set(used["linear2"].tolist()))),
        (active[0], active[1]),
        float(torch.nn.functional.cosine_similarity(own, columns, dim=1).min()),
        float(ratios.min()),
        float(ratios.max()),
        float(elsewhere.max()),
    )


def train(seed: int, steps: int | None, folder: Path) -> tuple[Recovery, float]:
    """Train the recipe, on the host; what it found, and its loss at the end."""
    config = SpdConfig(preset=PRESET, steps=steps, log_every=QUIET, eval_every=QUIET, save_every=QUIET)
    levels = {toggle.name: FAST.get(toggle.name, toggle.levels[0].value) for toggle in TOGGLES}
    workload = Spd()
    try:
        workload.setup(config, levels, Context(Device("cpu"), folder, folder, seed=seed))
        steps = config.recipe.steps
        totals = [_loss_of_a_step(workload) for _ in range(steps)]
        last = totals[-max(int(LAST * steps), 1) :]
        objective = workload.training.parts.objective
        pair = objective.decomposition.operands()["linear1"].detached()
        weight: Tensor = objective.patching.target.get_submodule("linear1").weight  # type: ignore[assignment]
        return judge(one_feature_importances(objective), pair.V, pair.U, weight.T), sum(last) / max(
            len(last), 1
        )
    finally:
        workload.close()


def _loss_of_a_step(workload: Spd) -> float:
    workload.step(NullClock())
    return float(workload.training.total)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each seed, and the one to believe; 1 where that has not found the features."""
    parser = argparse.ArgumentParser(prog="python -m workloads.spd.oracle.recover", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--steps", type=int, default=None, help="iterations, instead of the recipe's")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    trained: dict[int, tuple[Recovery, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in given.seeds:
            recovery, loss = trained[seed] = train(seed, given.steps, Path(folder))
            print(f"seed {seed}: {recovery}, loss {loss:.4g}", flush=True)
    best, count = (
        min(trained, key=lambda seed: trained[seed][1]),
        sum(recovery.found for recovery, _ in trained.values()),
    )
    believed, loss = trained[best]
    print(
        f"{count} of {len(trained)} seeds found; the lowest loss, {loss:.4g}, is seed {best}'s:"
        f" {_word(believed)}"
    )
    return 0 if believed.found else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PerfsweepError as error:
        sys.exit(str(error))
