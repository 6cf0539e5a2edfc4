"""Whether a decomposition finds the features of a toy whose answer is known.

``python -m perfsweep.workloads.spd.validate --seeds 0 1 2`` trains the recipe ``tms_5-2_test`` and prints how
far each seed is from one subcomponent for each feature. Values to begin with decide whether two features that
point nearly opposite ways end up in one subcomponent; it costs more loss than keeping them apart, so of
several seeds the one with the lowest loss is believed.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.api import Context, Device, LevelValue, NullClock
from perfsweep.workloads.errors import PerfsweepError
from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.evaluation import one_feature_importances
from perfsweep.workloads.spd.oracle import Recovery, judge
from perfsweep.workloads.spd.variants import TOGGLES
from perfsweep.workloads.spd.workload import Spd

PRESET = "tms_5-2_test"
QUIET = 10**6  # iterations between logging, evaluations and saves: none
# share of iterations, the last, whose mean loss tells seeds apart: the learning rate is nearly zero by then
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
        arm = workload.arm
        pair = arm.decomposition.operands()["linear1"].detached()
        weight: Tensor = arm.target.get_submodule("linear1").weight  # type: ignore[assignment]
        return judge(one_feature_importances(arm), pair.V, pair.U, weight.T), sum(last) / max(len(last), 1)
    finally:
        workload.close()


def _loss_of_a_step(workload: Spd) -> float:
    workload.step(NullClock())
    return float(workload.arm.total)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each seed, and the one to believe; 1 where that has not found the features."""
    parser = argparse.ArgumentParser(prog="python -m perfsweep.workloads.spd.validate", description=__doc__)
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
        min(trained, key=lambda seed: (math.isnan(trained[seed][1]), trained[seed][1])),
        sum(recovery.found for recovery, _ in trained.values()),
    )
    believed, loss = trained[best]
    print(
        f"{count} of {len(trained)} seeds found; the lowest loss, {loss:.4g}, is seed {best}'s:"
        f" {believed.word}"
    )
    return 0 if believed.found else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PerfsweepError as error:
        sys.exit(str(error))
