"""A fork server with torch and its branches: what they share, and that no child outlives them."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.execution.forks import Forks, ForkServer
from perfsweep.pipelines.execution.spawn import ServerLost, wait
from perfsweep.pipelines.store.trial_schema import UNWRITTEN
from perfsweep.pipelines.trial import fork_server
from perfsweep.workloads.snapshot import VARIABLE, Snapshot

pytestmark = pytest.mark.slow


def tell(file: str) -> None:
    """First function of a child: write down what it has of its version, and what it finds imported."""
    names = ("torch", "torch._dynamo", "quiet_library", "threaded_library")
    facts = {"version": importlib.import_module("version_of_a_test").NAME, "parent": os.getppid()}
    facts["imported"] = [name for name in names if name in sys.modules]
    facts["ends on SIGTERM"] = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    Path(file).write_text(json.dumps(facts))


def stay(file: str) -> None:
    """First function of a child: say that it runs, and wait to be killed."""
    from perfsweep.pipelines.trial.parent import die_with_parent

    die_with_parent()
    Path(file).touch()
    signal.pause()


QUIET, THREADED = (
    "",
    "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
)


def test_branches_share_what_a_server_imported_have_a_version_each_and_end_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One server for all of it, since each takes seconds to import torch.

    The checkout's module is imported before the server branches: as if torch had needed its name.
    """
    from bench import alive  # children import this module too, and not what supports tests
    from waiting import until

    checkout = tmp_path / "checkout"
    for place, name in (("checkout", "checkout"), ("one", "one"), ("other", "other")):
        folder = checkout if place == "checkout" else Snapshot(tmp_path / place).copy_of(checkout)
        folder.mkdir(parents=True)
        (folder / "version_of_a_test.py").write_text(f"NAME = {name!r}\n")
    for name, text in (("quiet_library", QUIET), ("threaded_library", THREADED)):
        (checkout / f"{name}.py").write_text(text)
        (tmp_path / f"{name}.json").write_text(f'["a_module_that_has_gone", "{name}"]')
    path = os.pathsep.join([str(Path(__file__).parent), str(checkout), os.environ.get("PYTHONPATH", "")])
    server = ForkServer(["version_of_a_test"], {"PYTHONPATH": path}, early=True)  # streams: the captured ones

    def told(forks: Forks) -> dict[str, Any]:
        assert wait([forks.call(tell, str(tmp_path / "told"))], 240) is None
        return json.loads((tmp_path / "told").read_text())

    assert told(server)["imported"] == ["torch"], "the first trial waits for torch alone"
    server.complete()
    both = ["torch", "torch._dynamo"]
    assert told(server)["imported"] == both
    branches = {name: server.branch([], {VARIABLE: str(tmp_path / name)}) for name in ("one", "other")}
    found = {name: told(branch) for name, branch in branches.items()}
    assert len({facts.pop("parent") for facts in found.values()}) == 2
    assert found == {
        name: {"version": name, "imported": both, "ends on SIGTERM": True} for name in ("one", "other")
    }
    shared = server.branch(shared=str(tmp_path / "quiet_library.json"))
    assert told(shared)["imported"] == [*both, "quiet_library"]
    with pytest.raises(ServerLost):
        told(server.branch(shared=str(tmp_path / "threaded_library.json")))
    assert told(server)["imported"] == both
    child = server.call(fork_server.forked, str(tmp_path / "gone" / "spec.json"))
    assert wait([child], 120) is not None and child.code() == UNWRITTEN
    closed = f"{tmp_path}/gone/log.txt: No such file or directory"
    threads = "imports start threads or a device: every trial imports by itself"
    assert capfd.readouterr().err.splitlines() == [threads, closed]

    forks = {tmp_path / "of the server": server, tmp_path / "of a branch": branches["one"]}
    children = [one.call(stay, str(file)) for file, one in forks.items()]
    until(lambda: all(file.exists() for file in forks), "the children's start")
    server._requests.close()
    for child in children:
        ending = wait([child], 60)
        assert ending is not None and child.code() == -signal.SIGKILL
        until(lambda pid=child.pid: not alive(pid), "the kernel's signal, which comes after the pipe's end")
    for one in forks.values():
        with pytest.raises(ServerLost, match="the server that forks trials ended"):
            one.call(stay, "")


FAMILY = """
import os, signal, threading
from perfsweep.pipelines.trial.parent import by_itself

def main(arguments):
    threading.Thread(target=threading.Event().wait).start()
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        for _ in range(3):
            os.fork()
        while True:
            signal.pause()
    os.wait()
    return int(arguments[0])

by_itself(main)
"""


def test_nothing_outlives_a_process_that_no_server_has_forked() -> None:
    command = [sys.executable, "-c", FAMILY, "7"]
    # What lives on would hold the pipe open that is read here to its end.
    assert subprocess.run(command, stdout=subprocess.PIPE, check=False, timeout=120).returncode == 7
