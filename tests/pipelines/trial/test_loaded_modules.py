"""What of perfsweep a measured process loads: nothing of Slurm, of commands or of their options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

LOADED = (
    "import importlib, json, sys; importlib.import_module(sys.argv[1]); print(json.dumps([*sys.modules]))"
)


@pytest.mark.parametrize(
    ("module", "packages"),
    [
        ("process", {"checksums", "fields", "pipelines.own_code", "pipelines.store", "pipelines.units"}),
        ("fork_server", {"pipelines.own_code"}),
    ],
)
def test_a_measured_process_loads_few_packages_of_ours(module: str, packages: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, f"perfsweep.pipelines.trial.{module}"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        check=True,
    )
    ours = {name.removeprefix("perfsweep.") for name in json.loads(done.stdout) if "perfsweep." in name}
    depths = {name: 2 if name.startswith("pipelines.") else 1 for name in ours}
    found = {".".join(name.split(".")[:depth]) for name, depth in depths.items()}
    assert found == packages | {"marks", "workloads", "pipelines", "pipelines.trial"}
