"""The report's validation as a command: two arms side by side on a hundred examples.

``python -m perfsweep.workloads.latentwire.validate`` trains the naive path and another arm from one seed and
says whether single steps agree, losses converge alike, what memory they take, and whether answers lose
anything.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perfsweep.workloads.api import Context, Device, LevelValue, NullClock
from perfsweep.workloads.errors import ConfigError, PerfsweepError, UnsupportedHere
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.scores import Score, bootstrap, resolvable
from perfsweep.workloads.latentwire.variants import PRESETS, TOGGLES
from perfsweep.workloads.latentwire.workload import LatentWire

LOSS_BOUND = {"exact": 1e-3, "rounded": 2e-2}
SAVED_MIB = 2**20


@dataclass(frozen=True)
class Side:
    """What one arm did."""

    losses: tuple[float, ...]
    gradient: np.ndarray
    peak_mb: float
    scores: list[Score]


def levels_of(chosen: dict[str, LevelValue], batch: int) -> dict[str, LevelValue]:
    """All levels, baselines where nothing is chosen, in windows of `batch` rows."""
    levels: dict[str, LevelValue] = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}
    known = {toggle.name: toggle for toggle in TOGGLES}
    for name, value in chosen.items():
        if name not in known:
            raise ConfigError(f"toggle {name} is unknown; choose from: {', '.join(known)}")
        levels[name] = known[name].level(value).value
    pieces = levels["micro_batch"]
    micro = pieces if isinstance(pieces, str) else min(int(pieces), batch)
    return {**levels, "effective_batch": batch, "micro_batch": micro}


def train(config: LatentWireConfig, levels: dict[str, LevelValue], steps: int, folder: Path) -> Side:
    """Train an arm and evaluate it on the held-out examples."""
    device = Device(
        "cuda" if torch.cuda.is_available() else "cpu", count=torch.cuda.device_count(), compiler=True
    )
    _refuse_unsupported(levels, device)
    workload = LatentWire()
    saved = _SavedPeak()
    try:
        workload.setup(config, levels, Context(device, folder, folder))
        workload.prepare_evidence()
        for step in range(steps):
            with saved if step == 0 and device.type == "cpu" else nullcontext():
                workload.step(NullClock())
        found = workload.evidence()
        scores = workload.evaluate(config.max_new)
    finally:
        workload.close()
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else saved.bytes
    losses = tuple(float(value) for value in found.tensors["losses"])
    return Side(losses, found.tensors["gradient"].double().numpy(), peak / SAVED_MIB, scores)


def _refuse_unsupported(levels: dict[str, LevelValue], device: Device) -> None:
    for toggle in TOGGLES:
        value = levels[toggle.name]
        if reason := toggle.level(value).unsupported(device):
            raise UnsupportedHere(f"--arm has {toggle.name}={value}: {reason}; choose another arm or machine")


class _SavedPeak:
    """Bytes kept for the backward pass of a step, each storage once."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        self._held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def __enter__(self) -> None:
        self._hooks.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._hooks.__exit__(*exception)

    @property
    def bytes(self) -> int:
        return sum(self._held.values())


def compare(base: Side, arm: Side, rounded: bool) -> tuple[list[str], bool]:
    """Lines of the report, and whether nothing was lost."""
    gradient = float(np.linalg.norm(arm.gradient - base.gradient) / np.linalg.norm(base.gradient))
    drift = max(abs(a - b) / abs(b) for a, b in zip(arm.losses, base.losses, strict=True))
    bounds = (2e-2, LOSS_BOUND["rounded"]) if rounded else (1e-5, LOSS_BOUND["exact"])
    same = gradient <= bounds[0] and drift <= bounds[1]
    lines = [
        f"single step: gradients differ by {gradient:.2e} (bound {bounds[0]:.0e})",
        (
            f"{len(base.losses)} steps: loss {base.losses[0]:.4f} to {base.losses[-1]:.4f}, and"
            f" {arm.losses[-1]:.4f}; largest difference {drift:.2e} (bound {bounds[1]:.0e})"
        ),
        f"memory kept for the backward pass: {base.peak_mb:.1f} and {arm.peak_mb:.1f} MiB",
    ]
    pairs = [_paired(before, after) for before, after in zip(base.scores, arm.scores, strict=True)]
    lines += [line for line, _ in pairs]
    lost = any(is_lower for _, is_lower in pairs)
    each = base.scores[0].f1_each
    lines.append(f"{len(each)} examples resolve differences of about {100 * resolvable(each):.0f} points")
    lines.append(f"verdict: {'the same' if same and not lost else 'different'}")
    return lines, same and not lost


def _paired(before: Score, after: Score) -> tuple[str, bool]:
    """Line on the answers of one model and arm, and whether its F1 is surely lower."""
    interval = bootstrap([a - b for a, b in zip(after.f1_each, before.f1_each, strict=True)])
    line = (
        f"model {before.model} {before.arm:12}: EM {before.em} and {after.em}, F1 {before.f1} and"
        f" {after.f1}, paired difference of F1 {interval}"
    )
    return line, interval.high < 0


def main(arguments: Sequence[str]) -> int:
    """Status 0 where nothing was lost, 1 where something was, 2 for a mistake."""
    given = _parsed(arguments)
    try:
        config, levels = _task_of(given)
        with tempfile.TemporaryDirectory() as name:
            base = train(config, levels_of({}, given.batch), given.steps, Path(name))
            arm = train(config, levels, given.steps, Path(name))
    except PerfsweepError as error:
        print(error, file=sys.stderr)
        return 2
    lines, same = compare(base, arm, rounded=levels["lm_dtype"] != "fp32" or levels["amp"] != "off")
    print("\n".join(lines))
    if given.json:
        print(json.dumps({"naive": base.losses, "arm": arm.losses}))
    return 0 if same else 1


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m perfsweep.workloads.latentwire.validate", description=__doc__
    )
    parser.add_argument("--preset", default="test", help="workload.preset (default: test)")
    parser.add_argument(
        "--arm", default="fast_exact", help=f"one of {', '.join(PRESETS)}, or levels as a=b,c=d"
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--examples", type=int, default=100, help="held-out examples to answer")
    parser.add_argument("--json", action="store_true", help="print the losses of both arms as JSON too")
    return parser.parse_args(arguments)


def _task_of(given: argparse.Namespace) -> tuple[LatentWireConfig, dict[str, LevelValue]]:
    """Configuration and levels of the arm; ConfigError where an argument cannot be used."""
    for name in ("steps", "batch", "examples"):
        if getattr(given, name) < 1:
            raise ConfigError(f"--{name} {getattr(given, name)} cannot be used: it must be at least 1")
    chosen = PRESETS.get(given.arm)
    if chosen is None:
        chosen = dict(part.split("=", 1) for part in given.arm.split(",") if "=" in part)
    if not chosen and given.arm != "naive":
        raise ConfigError(
            f"--arm {given.arm} is neither a preset ({', '.join(PRESETS)}) nor levels as a=b,c=d"
        )
    config = LatentWireConfig(preset=given.preset, held_out=given.examples, data_n=max(32, 4 * given.batch))
    return config, levels_of(chosen, given.batch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
