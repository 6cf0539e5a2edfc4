"""Profiling tools by name, and why a slice or an installation refuses one; a tool is imported when made."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from perfsweep.pipelines.profiling.tool import Tool
from perfsweep.pipelines.store.options import ProfileConfig

BARE = "bare"
"""No tool at all: a process that only says what the slice takes."""

_CLASSES = {
    "pyinstrument": ("sampling", "Sampling"),
    "torch": ("tracing", "Tracing"),
    "memory": ("memory", "Memory"),
    "roofline": ("roofline", "Roofline"),
    "dynamo": ("dynamo", "Dynamo"),
}
NAMES = tuple(_CLASSES)


def make(options: ProfileConfig, folder: Path) -> Tool:
    """The tool that `options` ask for; it writes into `folder`."""
    if options.tool == BARE:
        return Tool(options, folder)
    module, name = _CLASSES[options.tool]
    return getattr(import_module(f"perfsweep.pipelines.profiling.{module}"), name)(options, folder)


def refusal(tool: str, slice_: str) -> str | None:
    """One sentence why `tool` cannot be used here, or on a slice; None where it can."""
    if tool == "roofline" and slice_ == "first":
        return (
            "profile.slice=first has no roofline: counting operators and timing them cannot share the first"
            " iteration"
        )
    if tool == "pyinstrument" and find_spec("pyinstrument") is None:
        return (
            "profile.tool=pyinstrument needs the package pyinstrument, which is not installed: pip install"
            " pyinstrument"
        )
    return None
