"""What a probe job looks at on its node, with the standard library alone.

Run as ``python -P probe_body.py QUESTIONS ANSWERS``. QUESTIONS is a JSON file with ``modules`` (names that
packs import) and ``url`` (of the W&B server). ANSWERS gets what was found, whole or not at all.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

NETWORK_S, TORCH_S = 10, 60

COUNT_GPUS = "import torch; print(torch.__version__, torch.cuda.device_count())"


def answers(questions: dict) -> dict:
    """Look at everything; what cannot be found out is a sentence under its name."""
    return {
        "host": socket.gethostname(),
        "time": time.time(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "missing": [name for name in questions["modules"] if importlib.util.find_spec(name) is None],
        "visible": [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name],
        "torch": torch_sees(),
        "scratch": scratch(),
        "network": reached(questions["url"]),
    }


def torch_sees() -> str:
    """Import torch in a process of its own; its version and how many GPUs it sees, or why not."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", COUNT_GPUS], capture_output=True, text=True, timeout=TORCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"importing torch took longer than {TORCH_S} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if lines else f"importing torch ended with status {done.returncode}"


def scratch() -> dict:
    """Write a file on the node's own disk, where the profile names one."""
    place = os.environ.get("PERFSWEEP_SCRATCH", "")
    if not place:
        return {}
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"probe")
        return {"path": place, "free_gib": shutil.disk_usage(place).free / 2**30}
    except OSError as error:
        return {"path": place, "error": error.strerror or str(error)}


def reached(url: str) -> str:
    """Why a server was not reached, through whatever proxy the environment names; empty where it was."""
    try:
        urllib.request.urlopen(url, timeout=NETWORK_S).close()
    except urllib.error.HTTPError:
        return ""  # it answered
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return ""


if __name__ == "__main__":
    _questions, _answers = map(Path, sys.argv[1:3])
    _part = _answers.with_suffix(".part")
    _part.write_text(json.dumps(answers(json.loads(_questions.read_text()))))
    _part.replace(_answers)
