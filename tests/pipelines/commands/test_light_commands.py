"""Commands that only look at a sweep, or copy its records, answer without importing torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pipelines.config.types import DesignConfig
from pipelines.execution import launch
from pipelines.plan import plan
from pipelines.store.records import SweepFolder
from workloads.api import Device

RUN = """
import sys
from pipelines.cli import main
try:
    main(sys.argv[1:])
finally:
    print("torch imported" if "torch" in sys.modules else "no torch")
"""


@pytest.mark.parametrize(
    "arguments", [["status"], ["logs"], ["publish", "--offline"], ["status", "--help"]], ids=" ".join
)
def test_it_needs_no_torch(arguments: list[str], command, tmp_path) -> None:
    manifest = plan.make_plan(command(DesignConfig("ladder", levels={"slab": [2]})), Device())
    folder = SweepFolder(tmp_path / "runs" / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    said = subprocess.run(
        [sys.executable, "-c", RUN, *arguments, str(folder.path)], capture_output=True, text=True, timeout=200
    )
    assert said.stdout.splitlines()[-1] == "no torch", said.stderr
    assert "Traceback" not in said.stderr
