"""What the stages run, by name: values of `conf/gpu_check.yaml`, of which the code knows only the form."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def cases() -> dict[str, Any]:
    """Read the cases of each stage."""
    return yaml.safe_load(files("conf").joinpath("gpu_check.yaml").read_text())
