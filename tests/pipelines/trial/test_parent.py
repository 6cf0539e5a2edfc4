"""A measured process and what it is given by its parent: its log, its node, its workload, its collector."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfsweep.pipelines.trial import parent
from perfsweep.pipelines.trial.collector import prepare_collector, settle_collector


def test_a_node_is_called_as_slurm_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    assert parent.node_name() == "n2"
    monkeypatch.setenv("SLURMD_NODENAME", "")
    assert parent.node_name() == socket.gethostname()


def child(log: Path) -> tuple[int, int]:
    """Fork a process that detaches itself and prints on both streams: its status, and its process group."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            parent.detach(log)
            os.write(1, b"said\n")
            os.write(2, b"warned\n")
            os.write(write, str(os.getpgid(0)).encode())
            status = 0
        except SystemExit:
            status = 7
        finally:
            os._exit(status)
    os.close(write)
    group = os.read(read, 99)
    os.close(read)
    _, ended = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(ended), int(group or 0) - pid


def test_a_forked_process_leads_a_group_and_writes_into_its_log_behind_what_is_there(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("before\n")
    assert child(log) == (0, 0)
    assert log.read_text() == "before\nsaid\nwarned\n"
    assert child(tmp_path / "nowhere/log.txt")[0] == 7


@pytest.fixture
def frozen() -> Iterator[None]:
    gc.freeze()
    yield
    gc.freeze()


@pytest.mark.parametrize("owns", [True, False])
def test_the_collector_is_the_same_for_all_arms_unless_it_is_what_one_measures(
    frozen: None, monkeypatch: pytest.MonkeyPatch, owns: bool
) -> None:
    calls: list[str] = []
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name))
    workload = SimpleNamespace(
        toggles_named=lambda levels: [
            SimpleNamespace(owns_collector=False),
            SimpleNamespace(owns_collector=owns),
        ]
    )
    prepare_collector(workload, {})  # type: ignore[arg-type]
    settle_collector(workload, {})  # type: ignore[arg-type]
    assert calls == (["unfreeze"] if owns else ["collect", "freeze"])
