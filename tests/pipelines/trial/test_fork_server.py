"""The fork server: how its children end, what they start with, and that none outlives it."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.spawn import ServerLost, wait
from perfsweep.pipelines.store.records import Outcome
from perfsweep.pipelines.store.trial_schema import UNWRITTEN
from perfsweep.pipelines.trial import forked_trial
from perfsweep.pipelines.trial.fork_server import Imports, preload
from perfsweep.workloads.snapshot import VARIABLE, Snapshot

pytestmark = pytest.mark.slow


def leave(status: str) -> None:
    """First function of a child: end as told."""
    if status.startswith("-"):
        os.kill(os.getpid(), -int(status))
    sys.exit(int(status))


def tell(file: str) -> None:
    """First function of a child: write down what it starts with."""
    facts = {
        "start method": multiprocessing.get_start_method(allow_none=True),
        "collects": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "ends on SIGTERM": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "seed": os.environ["PYTHONHASHSEED"],
        "torch": "torch" in sys.modules,
        "descriptors": [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if _stays_open(one)],
    }
    Path(file).write_text(json.dumps(facts))


def _stays_open(descriptor: Path) -> bool:
    return int(descriptor.name) > 2 and descriptor.exists()


def stay(file: str) -> None:
    """First function of a child: say that it runs, and wait to be killed."""
    from perfsweep.pipelines.trial.parent import die_with_parent

    die_with_parent()
    Path(file).touch()
    signal.pause()


@pytest.fixture(scope="module")
def server() -> ForkServer:
    return ForkServer(
        [],
        {
            "PYTHONHASHSEED": "5",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        },
    )


@pytest.mark.parametrize("status", ["0", "3", "-9", "-11"])
def test_a_child_ends_with_the_status_it_ends_with(server: ForkServer, status: str) -> None:
    child = server.call(leave, status)
    ending = wait([child], 60)
    assert child.code() == int(status)
    assert (ending is None) is (status == "0")


def test_children_end_in_any_order_and_none_takes_the_status_of_another(server: ForkServer) -> None:
    children = [server.call(leave, str(status)) for status in (1, 2, 0, 4)]
    for child in children:
        wait([child], 60)
    assert [child.code() for child in children] == [1, 2, 0, 4]


def test_a_child_starts_as_a_users_process_does(server: ForkServer, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    assert wait([server.call(tell, str(file))], 60) is None
    facts = json.loads(file.read_text())
    assert facts.pop("descriptors") == [], "a descriptor of the server would keep its pipes open"
    assert facts == {
        "start method": None,
        "collects": True,
        "ends on SIGTERM": True,
        "seed": "5",
        "torch": True,
    }


def test_a_child_that_hangs_is_given_up_at_its_deadline(server: ForkServer, tmp_path: Path) -> None:
    ending = wait([server.call(stay, str(tmp_path / "pid"))], 0.5)
    assert ending is not None and ending.outcome is Outcome.TIMEOUT


def test_a_child_keeps_the_server_that_nobody_else_holds() -> None:
    assert wait([ForkServer([]).call(leave, "0")], 60) is None


def of_version(file: str) -> None:
    """First function of a child: write down what it has of its version, and what it shares."""
    version = importlib.import_module("version_of_a_test").NAME
    names = {"version": version, "torch": "torch" in sys.modules, "parent": os.getppid()}
    Path(file).write_text(json.dumps({**names, "signal": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL}))


def test_branches_of_a_server_have_a_version_each_and_share_what_it_imported(tmp_path: Path) -> None:
    """The checkout's module is imported before the server branches: as if torch had needed its name."""
    checkout, told = tmp_path / "checkout", {}
    for place, name in (("checkout", "checkout"), ("one", "one"), ("other", "other")):
        folder = checkout if place == "checkout" else Snapshot(tmp_path / place).copy_of(checkout)
        folder.mkdir(parents=True)
        (folder / "version_of_a_test.py").write_text(f"NAME = {name!r}\n")
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, str(checkout), os.environ.get("PYTHONPATH", "")])
    server = ForkServer(["version_of_a_test"], {"PYTHONPATH": path})
    branches = {name: server.branch([], {VARIABLE: str(tmp_path / name)}) for name in ("one", "other")}
    for name, branch in branches.items():
        file = tmp_path / f"{name}.json"
        assert wait([branch.call(of_version, str(file))], 120) is None
        told[name] = json.loads(file.read_text())
    parents = {name: facts.pop("parent") for name, facts in told.items()}
    assert told == {name: {"version": name, "torch": True, "signal": True} for name in ("one", "other")}
    assert len(set(parents.values())) == 2
    child = branches["one"].call(leave, "3")
    assert wait([child], 60) is not None and child.code() == 3


def test_no_child_outlives_its_server(tmp_path: Path) -> None:
    from bench import alive  # children import this module too, and not what supports tests
    from waiting import until

    server = ForkServer([])
    forks = {tmp_path / "of the server": server, tmp_path / "of a branch": server.branch([], {})}
    children = [one.call(stay, str(file)) for file, one in forks.items()]
    until(lambda: all(file.exists() for file in forks), "the children's start")
    server._requests.close()
    for child in children:
        ending = wait([child], 60)
        assert ending is not None and child.code() == -signal.SIGKILL
        until(lambda pid=child.pid: not alive(pid), "the kernel's signal, which comes after the pipe's end")
    for one in forks.values():
        with pytest.raises(ServerLost, match="the server that forks trials ended"):
            one.call(leave, "0")


FAMILY = """
import os, signal, threading
from perfsweep.pipelines.trial.fork_server import by_itself

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


def test_a_server_that_has_died_is_named() -> None:
    server = ForkServer([])
    server._process.kill()
    with pytest.raises(RuntimeError, match="the server that forks trials ended with status"):
        server.call(leave, "0")


def heavy(file: str) -> None:
    """First function of a child: write down which of the two heavy imports it finds."""
    found = [name for name in ("torch", "torch._dynamo") if name in sys.modules]
    Path(file).write_text(" ".join(found))


@pytest.mark.parametrize("first", ["a trial", "nothing"])
def test_the_first_trial_waits_for_torch_alone_and_a_timed_one_for_all(first: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    server = ForkServer([], {"PYTHONPATH": path}, early=True)
    if first == "a trial":
        assert wait([server.call(heavy, str(tmp_path / "first"))], 120) is None
        assert (tmp_path / "first").read_text() == "torch"
    server.complete()
    assert wait([server.call(heavy, str(tmp_path / "timed"))], 120) is None
    assert (tmp_path / "timed").read_text() == "torch torch._dynamo"


def test_a_pack_that_dies_while_it_waits_for_an_answer_makes_no_server_complain() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [
            sys.executable,
            "-m",
            "perfsweep.pipelines.trial.fork_server",
            str(theirs.fileno()),
            str(Imports(["json"])),
        ]
        server = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
    ended, status = os.pipe()
    socket.send_fds(ours, [json.dumps(["os", "getpid"]).encode()], [status])
    ours.close()
    _, said = server.communicate(timeout=60)
    for descriptor in (ended, status):
        os.close(descriptor)
    assert (server.returncode, said) == (0, "")


def test_a_server_whose_own_code_is_gone_says_so_in_one_line_and_blames_no_trial(tmp_path: Path) -> None:
    """As where the folder of a sweep, which has a copy of the code, is closed while the server imports."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    modules = ["a_module_that_a_user_has_not", "perfsweep.pipelines.trial.that_is_gone"]
    with theirs, ours:
        command = [
            sys.executable,
            "-m",
            "perfsweep.pipelines.trial.fork_server",
            str(theirs.fileno()),
            str(Imports(modules)),
        ]
        fds = [theirs.fileno()]
        server = subprocess.run(command, pass_fds=fds, capture_output=True, text=True, timeout=60)
    lines = server.stderr.splitlines()
    assert server.returncode == 1 and len(lines) == 1, lines
    assert "cannot read its own code: No module named 'perfsweep.pipelines.trial.that_is_gone'" in lines[0]


def test_a_server_that_cannot_read_the_copies_of_a_users_code_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = f"/{'too-long' * 40}"
    monkeypatch.setenv(VARIABLE, copies)
    with pytest.raises(SystemExit) as end:
        preload(Imports(["toys.spinner"]))
    assert end.value.code == f"the server that forks trials cannot read {copies}: File name too long"


def test_a_child_that_cannot_write_its_log_says_so_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The trial's folder was closed after its specification was written; here it is gone."""
    server = ForkServer([])  # its streams are the captured ones
    child = server.call(forked_trial.forked, str(tmp_path / "gone" / "spec.json"))
    assert wait([child], 120) is not None and child.code() == UNWRITTEN
    assert capfd.readouterr().err == f"{tmp_path}/gone/log.txt: No such file or directory\n"


def fail(status: str) -> None:
    """First function of a child whose streams take nothing more."""
    sys.stdout = sys.stderr = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115 - until it ends
    sys.stdout.write("half a line")
    if status:
        sys.exit(int(status))
    raise ValueError("nobody reads this")


@pytest.mark.parametrize(("status", "code"), [("", 1), ("0", 0), ("74", 74)])
def test_a_child_whose_log_takes_nothing_more_ends_with_its_own_status(
    server: ForkServer, status: str, code: int
) -> None:
    child = server.call(fail, status)
    wait([child], 60)
    assert child.code() == code


@pytest.mark.parametrize(
    "body", ["raise PermissionError(13, 'Permission denied', '/srv/data/x')", "import pipelines.that_is_not"]
)
def test_what_a_users_module_raises_is_left_to_its_trial(tmp_path: Path, body: str) -> None:
    (tmp_path / "a_users_module.py").write_text(body)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = str(theirs.fileno()), str(Imports(["a_users_module"]))
        own = ["-m", "perfsweep.pipelines.trial.fork_server", *words]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
        fds = [theirs.fileno()]
        server = subprocess.Popen(
            [sys.executable, *own], pass_fds=fds, env=env, stderr=subprocess.PIPE, text=True
        )
    ours.close()  # nothing more is asked of it
    _, said = server.communicate(timeout=60)
    assert (server.returncode, said) == (0, "")
