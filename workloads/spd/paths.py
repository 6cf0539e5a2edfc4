"""The arms that the headline measures as paths of `decompose`, with the levels that can act where it runs."""

from __future__ import annotations

import torch

from perfsweep.workloads.api import Device, LevelValue
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants import TOGGLES

_COMMON: dict[str, LevelValue] = {
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
EXACT: dict[str, LevelValue] = {**_COMMON, "component_kernel": "fused"}
PATHS: dict[str, dict[str, LevelValue]] = {
    "naive": {},
    "exact": EXACT,
    "gathered": {**EXACT, "routed_rows": "gathered"},
    "stacked": {**EXACT, "stack_modules": "stacked"},
    "compiled": {**_COMMON, "stack_modules": "stacked", "compile": "full"},
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
