"""Decompose a network from a program, without a sweep: ``from perfsweep.workloads.spd import decompose``."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perfsweep.workloads.api import Context, Device, LevelValue, NullClock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.spd import upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.maths.sites import unstack
from perfsweep.workloads.spd.training.targets import Given
from perfsweep.workloads.spd.variants import TOGGLES
from perfsweep.workloads.spd.workload import Spd

EXACT: dict[str, LevelValue] = {
    "patching": "wrapper",
    "delta": "folded",
    "pgd_inner": "detached",
    "pgd_layerwise": "single",
    "target_softmax": "cached",
    "metrics": "deferred",
    "mask_checks": "off",
    "optimizer": "fused",
    "loader": "memmap_batched",
    "draws": "native",
    "products": "native",
}
PATHS: dict[str, dict[str, LevelValue]] = {
    "naive": {},
    "exact": EXACT,
    "gathered": {**EXACT, "routed_rows": "gathered"},
    "stacked": {**EXACT, "stack_modules": "stacked"},
    "compiled": {**EXACT, "stack_modules": "stacked", "compile": "full"},
}
"""By the names of the headline's arms; all have the naive path's losses and gradients, but for rounding.

What needs the stages of the target or freezes the objects of the process is left out.
"""


NAIVE: dict[str, LevelValue] = {toggle.name: toggle.levels[0].value for toggle in TOGGLES}


def default_path(device: str) -> str:
    """The fastest arm of the headline that compiles nothing."""
    return "gathered" if device == "cpu" else "exact"


def levels_of(path: str, amp: str, config: SpdConfig, device: str) -> dict[str, LevelValue]:
    """One level for each toggle: those of a path that can act here, and the naive ones for the rest.

    Raises
    ------
    ConfigError
        There is no such path, or it cannot go with the configuration.
    """
    if path not in PATHS:
        raise ConfigError(f"path={path}: no such path. Give one of {', '.join(PATHS)}.")
    here = Device(device, compiler=compiler_here() is not None)
    chosen = {**PATHS[path], "amp": amp}
    if torch.get_num_threads() > 1:
        chosen.pop("products", None)  # made by PyTorch's library anyway
    toggles = {toggle.name: toggle for toggle in TOGGLES}
    acting = {
        name: value for name, value in chosen.items() if not toggles[name].level(value).unsupported(here)
    }
    levels = {**NAIVE, **acting}
    for name, value in levels.items():
        level = toggles[name].level(value)
        unmet = [other for other, wanted in level.requires.items() if levels[other] not in wanted]
        reason = f"it needs another {unmet[0]}" if unmet else level.refused(config, levels)
        if reason:
            raise ConfigError(f"{name}={value}: cannot go with path={path}, because {reason}.")
    return levels


@dataclass
class Decomposition:
    """A trained decomposition; `close` it, or use it in a ``with`` statement.

    Attributes
    ----------
    losses : total of each iteration
    path : name of the arm that ran, as the headline measures it
    levels : its levels where they are not the naive path's
    """

    losses: list[float]
    path: str
    levels: dict[str, LevelValue]
    _workload: Spd
    _folder: tempfile.TemporaryDirectory[str]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """``components.X.V`` [in, C], ``.U`` [C, out] and importance functions, on the host."""
        state = self._workload.arm.decomposition.state()
        return {name: tensor.cpu().clone() for name, tensor in state.items()}

    def upstream(self) -> dict[str, Tensor]:
        """The same and the frozen network by upstream's names: a state_dict of its ComponentModel."""
        arm = self._workload.arm
        return upstream.exported(self.tensors, arm.target, arm.sites, arm.decomposition.frequencies)

    def importances(self, batch: Tensor | np.ndarray) -> dict[str, Tensor]:
        """Causal importances [..., C] in [0, 1] by module, for token ids [B, S] or vectors [B, f]."""
        arm = self._workload.arm
        rows = torch.as_tensor(batch).to(arm.device)
        rows = rows.to(arm.dtype) if rows.is_floating_point() else rows.long()
        with torch.no_grad():
            moment = arm.moment(rows, arm.decomposition.operands(), NullClock())
        return {name: ci.cpu() for name, ci in unstack(moment.lower).items()}

    def figures(self) -> dict[str, float]:
        """Divergences, losses and counts of needed components on held-out rows, as ``eval/...``."""
        return dict(self._workload.arm.evaluate(self._workload.arm.step))

    def keep(self, folder: str | Path) -> None:
        """Write the files of a kept decomposition into a new or empty folder; see
        `perfsweep.workloads.spd.workload`.

        Raises
        ------
        ConfigError
            The folder holds something or cannot be written to.
        """
        place = Path(folder)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise ConfigError(f"{place} exists and is not empty: give a new folder")
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{place} cannot be made: {error.strerror or error}") from error
        self._workload.keep(place)

    def close(self) -> None:
        """End what the training holds."""
        self._workload.close()
        self._folder.cleanup()

    def __enter__(self) -> Decomposition:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def decompose(
    network: nn.Module,
    data: np.ndarray | Tensor,
    modules: Mapping[str, int],
    *,
    steps: int,
    output_part: str | None = None,
    preset: str = "lm_test",
    seed: int = 0,
    device: str = "cpu",
    amp: str = "off",
    path: str | None = None,
    values: Mapping[str, Tensor] | None = None,
    log: Callable[[Mapping[str, float]], None] = lambda row: None,
    **options: Any,
) -> Decomposition:
    """Train the decomposition of a network, and return it.

    Parameters
    ----------
    network : called with a batch; it is copied, and neither trained nor changed. Weights in 16 bit are read
        exactly, and computed with in `dtype`
    data : token ids [n, S] or vectors [n, f]; one row in twenty is held out for figures
    modules : patterns of module names (``*`` for anything), each with its number of subcomponents C
    steps : iterations
    output_part : attribute such as ``logits``, or number, of the network's result; None where it is a tensor
    preset : recipe that `options` differ from
    device : ``cpu`` or ``cuda``
    amp : off, bf16 or, on a GPU, fp16
    path : naive, exact, gathered, stacked or compiled, arms of the headline sweep; None for the fastest that
        compiles nothing. `compiled` takes minutes to begin with
    values : to begin with, by the names of a kept decomposition or by upstream's
    log : takes each row of metrics
    options : further fields of `SpdConfig`, such as ``batch_size``, ``lr``, ``importance``, ``coefficients``

    Raises
    ------
    ConfigError
        Network, data and options do not fit one another.
    """
    _refuse_precision(amp, device)
    rows = _on_the_host(data) if isinstance(data, Tensor) else np.asarray(data)
    config = _configuration(network, rows, modules, steps, output_part, preset, options)
    chosen = path or default_path(device)
    levels = levels_of(chosen, amp, config, device)
    off = {name: value for name, value in levels.items() if value != NAIVE[name]}
    workload = Spd(Given(copy.deepcopy(network), rows, values))
    folder = tempfile.TemporaryDirectory(prefix="spd-")
    found = Decomposition([], chosen, off, workload, folder)
    try:
        place = Path(folder.name)
        workload.setup(config, levels, Context(Device(device), place, place, seed=seed, log=log))
        totals = [_total_of_a_step(workload) for _ in range(steps)]
    except BaseException:
        found.close()
        raise
    found.losses.extend(torch.stack(totals).tolist() if totals else [])
    return found


def _configuration(
    network: nn.Module,
    rows: np.ndarray,
    modules: Mapping[str, int],
    steps: int,
    output_part: str | None,
    preset: str,
    options: Mapping[str, Any],
) -> SpdConfig:
    fixed = ("target", "target_path", "tokens_path", "vectors_path", "components", "resume", "values_path")
    if taken := [name for name in fixed if name in options]:
        raise ConfigError(
            f"{taken[0]} is a field of runs; decompose() is given its network and data directly"
        )
    if rows.ndim != 2:
        raise ConfigError(f"data must be token ids [n, S] or vectors [n, f]; it has {rows.dtype}{rows.shape}")
    vectors = rows.dtype.kind == "f"
    where = {"vectors_path": "data"} if vectors else {"tokens_path": "data", "seq_len": rows.shape[1]}
    # Nothing is saved on the way: what is to be kept, `keep` writes.
    own = {"save_every": 0, "eval_every": 0, **where, **options}
    name = f"{type(network).__module__}:{type(network).__qualname__.rpartition('.')[2]}"
    try:
        return SpdConfig(
            preset=preset, target=name, output_part=output_part, counts=dict(modules), steps=steps, **own
        )
    except TypeError as error:
        raise ConfigError(f"decompose(): {error}") from error


def _on_the_host(data: Tensor) -> np.ndarray:
    data = data.detach().cpu()
    return (data.float() if data.dtype == torch.bfloat16 else data).numpy()  # NumPy has no bfloat16


def _refuse_precision(amp: str, device: str) -> None:
    known = next([str(level.value) for level in toggle.levels] for toggle in TOGGLES if toggle.name == "amp")
    if amp not in known:
        raise ConfigError(f"amp={amp}: no such type. Give one of {', '.join(known)}.")
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"device={device}: no such device. Give cpu or cuda.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda: PyTorch finds no GPU here. Give device=cpu.")
    if amp == "fp16" and device == "cpu":
        raise ConfigError("amp=fp16: float16 needs a GPU, and device=cpu. Give amp=bf16 or amp=off.")


def _total_of_a_step(workload: Spd) -> Tensor:
    workload.step(NullClock())
    return workload.arm.total.detach().clone()
