"""What the stages run, by name: values of `conf/gpu_check.yaml`, of which the code knows only the form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from perfsweep.pipelines import api
from perfsweep.pipelines.api import Sweep
from perfsweep.pipelines.gpu_check.answer import Here
from perfsweep.workloads.api import Device

ASSUMED = Device("cuda", 1, "NVIDIA H100 80GB HBM3", 80 * 2**30, (9, 0), 16, True)
"""The GPU that is planned for where there is none."""


@cache
def cases() -> dict[str, Any]:
    """Read the cases of each stage."""
    return yaml.safe_load(files("perfsweep.conf").joinpath("gpu_check.yaml").read_text())


def measured(here: Here, name: str, overrides: Sequence[str]) -> Sweep:
    """Measure a sweep on this machine and open it.

    Raises
    ------
    PerfsweepError
        It cannot be planned, or a pack broke off.
    """
    own = (f"name={name}", f"runs={here.folder}", "cluster=local", "tracking=disabled")
    return api.sweep(*overrides, *own)
