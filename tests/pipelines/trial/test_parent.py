"""What a measured process is given by its parent: log, node, collector, layout of memory, scratch folder."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench import alive
from waiting import until

from perfsweep.pipelines.trial import layout, parent, scratch
from perfsweep.pipelines.trial.layout import prepare_collector, settle_collector
from perfsweep.workloads.preloads import STEADY


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


MOVED = """
import sys
from perfsweep.pipelines.trial import layout
layout.shift_addresses(int(sys.argv[1]))
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
print(libc.malloc(3000) % 4096, libc.malloc(300000) % 4096)
"""


def test_servers_differ_in_hash_seed_unless_the_user_sets_it_and_in_the_size_of_their_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    drawn = [layout.environment("system", seed) for seed in range(20)]
    assert len({env["PYTHONHASHSEED"] for env in drawn}) == 20
    assert layout.draw("toy", "p000", 0, 1) == 213982853, "a sweep draws again what it has drawn"
    assert len({sum(map(len, env.values())) for env in drawn}) >= 15
    assert layout.environment("system", None) == {"PYTHONHASHSEED": "0"}
    for own, used in (("3", "3"), ("random", "7")):
        monkeypatch.setenv("PYTHONHASHSEED", own)
        assert layout.environment("system", 7)["PYTHONHASHSEED"] == used
    assert layout.environment("steady", 1).keys() - layout.environment("system", 1).keys() == STEADY.keys()


def test_the_heap_ends_elsewhere_with_every_seed() -> None:
    places = {
        subprocess.run(
            [sys.executable, "-c", MOVED, str(seed)], capture_output=True, text=True, check=True
        ).stdout
        for seed in range(3)
    }
    assert len(places) >= 2


CLIENT = """
import os, sys, time
from pathlib import Path
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.02)
Path("cleared").touch()
"""
PUBLISHER = """
import os, subprocess, sys, time
from perfsweep.pipelines.trial.parent import end_with_parent
end_with_parent()
words = [sys.executable, "-c", sys.argv[1], str(os.getpid())]
client = subprocess.Popen(words, start_new_session=True)
print(client.pid, flush=True)
time.sleep(600)
"""
PACK = f"""
import subprocess, sys, time
publisher = subprocess.Popen([sys.executable, "-c", {PUBLISHER!r}, {CLIENT!r}], stdout=subprocess.PIPE)
print(publisher.pid, int(publisher.stdout.readline()), flush=True)
time.sleep(600)
"""


def test_a_client_of_another_session_ends_by_itself_with_the_pack_though_a_suspended_job_has_stopped_it(
    tmp_path: Path,
) -> None:
    """W&B's client looks for its parent and clears up: one that is stopped or killed cannot."""
    pack = subprocess.Popen([sys.executable, "-c", PACK], stdout=subprocess.PIPE, cwd=tmp_path)
    assert pack.stdout
    left = [int(word) for word in pack.stdout.readline().split()]
    try:
        for pid in left:
            os.kill(pid, signal.SIGSTOP)
        for pid in left:  # resumed: the pack is there
            os.kill(pid, signal.SIGCONT)
        for pid in left:
            os.kill(pid, signal.SIGSTOP)
        assert all(map(alive, left))
        pack.kill()
        until(lambda: not any(map(alive, left)), "the end of both")
        assert (tmp_path / "cleared").exists()
    finally:
        pack.kill()
        pack.communicate()
        parent.kill_all(left)


def test_processes_are_killed_though_some_have_ended() -> None:
    child = subprocess.Popen(["sleep", "600"])
    try:
        parent.kill_all([2**22 + 1, child.pid])  # more than the kernel has
        assert child.wait(60) == -signal.SIGKILL
    finally:
        child.kill()


@pytest.mark.parametrize("local", [True, False], ids=["on the node", "next to the record"])
def test_every_rank_makes_the_same_folder_and_one_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    node, trial = tmp_path / "node", tmp_path / "arm" / "p000-r000-0"
    trial.mkdir(parents=True)
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(node) if local else "")
    for _ in range(2):
        (scratch.make(trial) / "rank0").mkdir(exist_ok=True)
    assert (trial / "scratch").resolve().is_relative_to(node if local else trial)
    scratch.remove(trial)
    assert not list(trial.iterdir()), "not even a link"
    assert not local or not list(node.iterdir())
    scratch.remove(trial)


def test_another_node_makes_its_own_behind_the_same_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = tmp_path / "arm" / "p000-r000-0"
    trial.mkdir(parents=True)
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(tmp_path / "node"))
    scratch.make(trial)
    (tmp_path / "node" / "arm-p000-r000-0").rmdir()  # as it looks from another node's disk
    assert scratch.make(trial).is_dir()
