"""What the stages run, by name: values of `conf/gpu_check.yaml`, of which the code knows only the form."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from perfsweep.workloads.api import Device

ASSUMED = Device("cuda", 1, "NVIDIA H100 80GB HBM3", 80 * 2**30, (9, 0), 16, True)
"""The GPU that is planned for where there is none."""


@cache
def cases() -> dict[str, Any]:
    """Read the cases of each stage."""
    return yaml.safe_load(files("perfsweep.conf").joinpath("gpu_check.yaml").read_text())
