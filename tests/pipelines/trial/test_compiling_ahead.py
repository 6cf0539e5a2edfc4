"""A server that has compiled something: what it forks need not ask the machine what it asked."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.execution.forks import Forks, ForkServer
from perfsweep.pipelines.execution.spawn import wait
from perfsweep.pipelines.trial.machine.environment import can_compile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_compile(), reason="torch.compile finds no C++ compiler"),
]


def compile_an_addition(cache_dir: str, file: str) -> None:
    """First function of a child: compile, and write down which programs that starts."""
    import torch

    started: list[str] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, args: Any, *more: Any, **own: Any) -> None:
            started.append(str(args))
            super().__init__(args, *more, **own)

    subprocess.Popen = Noted  # type: ignore[misc]
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{cache_dir}/compiler"
    torch.set_num_threads(2)  # a fork after threads of OpenMP would wait for ever for them
    value = torch.compile(lambda tensor: tensor + 1)(torch.zeros(100_000))
    found = {"sum": value.sum().item(), "started": started, "threads": threading.active_count()}
    Path(file).write_text(json.dumps(found))


def compiled(server: Forks, cache_dir: Path, file: Path) -> dict[str, Any]:
    assert wait([server.call(compile_an_addition, str(cache_dir), str(file))], 240) is None
    return json.loads(file.read_text())


def test_a_fork_of_it_compiles_with_two_threads_and_asks_for_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "compiled").mkdir()
    env = {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # which would take most of the time
    }
    server = ForkServer([], env)
    cold = compiled(server, tmp_path, tmp_path / "cold.json")
    branch = server.branch(compiles=str(tmp_path))
    warm = compiled(branch, tmp_path, tmp_path / "warm.json")
    assert cold["sum"] == warm["sum"] == 100_000
    assert len(warm["started"]) < len(cold["started"]) and not any(
        "version" in one for one in warm["started"]
    )
