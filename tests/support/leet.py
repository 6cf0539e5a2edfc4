"""W&B's own reader of offline runs, which shares no code with ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def inspected(file: Path, private: Path) -> list[dict[str, Any]]:
    """Records of a `.wandb` file as `wandb leet inspect` prints them; skips where it has no such command."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
    environment = {
        **os.environ,
        "TMPDIR": str(private),
        "WANDB_CACHE_DIR": str(private),
        "WANDB_CONFIG_DIR": str(private),
    }
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    if "No such command" in told.stderr:
        pytest.skip("this version of wandb has no `leet inspect`, the other reader of such files")
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert lines, told.stderr
    return lines
