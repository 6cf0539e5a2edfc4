"""A fork server without torch: what its children start with, how their ends are told, and when it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from perfsweep.pipelines.execution import forks
from perfsweep.pipelines.execution.forks import Forks
from perfsweep.pipelines.execution.spawn import Child, ServerLost, wait
from perfsweep.pipelines.trial import fork_server
from perfsweep.pipelines.trial.fork_server import Imports
from perfsweep.workloads.snapshot import VARIABLE

CHILD = """
import gc, json, multiprocessing, os, signal, sys
from pathlib import Path

def well(file):
    seen = {"modules": sorted({"colorsys", "wave"} & set(sys.modules)), "own": os.environ.get("OWN")}
    seen["interrupt"] = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    seen["ctrl_c"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen["frozen"] = gc.get_freeze_count() > 0
    seen["collects"] = signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    seen["start method"] = multiprocessing.get_start_method(allow_none=True)
    opened = [one for one in Path("/proc/self/fd").iterdir() if int(one.name) > 2 and one.exists()]
    seen["descriptors"] = [str(one.readlink()) for one in opened]
    Path(file).write_text(json.dumps(seen))

def named(file):
    from importlib import metadata
    from perfsweep.workloads import registry
    metadata.entry_points = registry.entry_points = None
    Path(file).write_text(str("digits" in registry.names()))

def leave(status):
    sys.exit(int(status))

def complain(text):
    sys.exit(text)

def quiet():
    sys.exit()

def fall():
    raise ValueError("mine")

def rest(file):
    Path(file).write_text("here")
    signal.pause()

def daemon(file, last):
    import subprocess
    spin = [sys.executable, "-c", "import time\\nwhile True: time.sleep(0.01)"]
    twice = "import subprocess as s, sys; print(s.Popen(sys.argv[1:], start_new_session=True, stdout=2).pid)"
    started = subprocess.run([sys.executable, "-c", twice, *spin], stdout=subprocess.PIPE, text=True)
    Path(file + "-").write_text(started.stdout)
    os.rename(file + "-", file)
    while not os.path.exists(last):
        signal.sigtimedwait([signal.SIGUSR1], 0.01)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def fill(status):
    sys.stdout = sys.stderr = Path("/dev/full").open("w", buffering=1)
    sys.stdout.write("half a line")
    if status:
        sys.exit(int(status))
    raise ValueError("the log takes none of this")
"""


class Server(Forks):
    """A server whose process a test has started."""

    def __init__(self, folder: Path, imports: Imports) -> None:
        requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(requests)
        own = str(Path(fork_server.__file__).parents[2])
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), own]), "OWN": "yes"}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", fork_server.__name__, str(theirs.fileno()), str(imports)],
                env=env,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                text=True,
            )

    def ask(self, function: str, *words: str) -> Child:
        """Fork a child that calls a function of the module above."""
        made = type("Named", (), {"__module__": "forked_in_tests", "__qualname__": function})
        return self.call(made, *words)

    def _status(self) -> int | None:
        return self.process.wait()

    def end(self) -> tuple[int, str]:
        self._requests.close()
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    (tmp_path / "forked_in_tests.py").write_text(CHILD)
    made: list[Server] = []

    def start(*modules: str, **others: Any) -> Server:
        made.append(Server(tmp_path, Imports(modules, **others)))
        return made[-1]

    yield start
    for server in made:
        server.process.kill()
        server.process.communicate()


def test_children_end_with_their_own_status_and_the_server_with_its_pack(
    serve: Callable[..., Server],
) -> None:
    server = serve()
    asked = [("leave", "0"), ("leave", "3"), ("quiet",), ("fall",), ("die",), ("complain", "no log")]
    asked += [("fill", ""), ("fill", "74")]
    codes = []
    for words in asked:
        child = server.ask(*words)
        wait([child], 60)
        codes.append(child.code())
    assert codes == [0, 3, 0, 1, -signal.SIGKILL, 1, 1, 74]
    children = [server.ask("leave", str(status)) for status in (5, 6, 7)]  # side by side
    for child in children:
        wait([child], 60)
    assert [child.code() for child in children] == [5, 6, 7]
    status, said = server.end()
    assert status == 0
    assert "ValueError: mine" in said and said.rstrip().endswith("no log")
    assert said.count("Traceback") == 1


def seen(server: Server, file: Path) -> dict:
    assert wait([server.ask("well", str(file))], 60) is None
    return json.loads(file.read_text())


def test_a_child_finds_what_was_imported_and_signals_as_a_users_process_does(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve("colorsys", "no_such_module", "perfsweep.workloads.registry")
    assert seen(server, tmp_path / "seen") == {
        "modules": ["colorsys"],
        "own": "yes",
        "interrupt": True,
        "ctrl_c": True,
        "frozen": True,
        "collects": True,
        "start method": None,
        "descriptors": [],  # one of the server's would keep its pipes open
    }
    assert wait([server.ask("named", str(tmp_path / "named"))], 60) is None
    assert (tmp_path / "named").read_text() == "True", "what packages offer is read once a server"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        server.process.send_signal(number)
    assert seen(server, tmp_path / "seen")["own"] == "yes", "signals to all of a job end no server"


def test_a_server_says_when_it_has_imported_everything(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        f"import time\nwhile not __import__('os').path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
    )
    server = serve("slow")
    assert not server.imported()
    (tmp_path / "go").touch()
    until(server.imported)
    child = server.ask("leave", "3")
    wait([child], 60)
    assert child.code() == 3 and server.imported()


def test_a_server_is_complete_once_what_it_imports_after_the_first_trial_is_imported(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/_dynamo.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    server = forks.ForkServer([], {"PYTHONPATH": str(tmp_path)}, early=True)
    server.complete()
    assert (tmp_path / "imported").exists()


def test_a_server_tells_the_processor_time_of_itself_and_its_branches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """User and system time, and that of children that were waited for: fields 14 to 17 of proc(5)."""

    def read(path: str) -> str:
        if path != "/proc/7/stat":
            raise ProcessLookupError("it has ended")
        return f"7 (a b) c) S {' '.join(str(10 ** (field - 13)) for field in range(13, 22))}"

    fields = "S " + "0 " * 9
    monkeypatch.setattr(
        forks, "Path", lambda path: SimpleNamespace(read_text=lambda: read(path).replace("S ", fields))
    )
    server: Any = SimpleNamespace(_family=lambda: [7, 8, 7])
    assert forks.ForkServer.own_s(server) * os.sysconf("SC_CLK_TCK") == pytest.approx(2 * 11110)


def test_a_branch_is_asked_for_with_its_imports_and_then_asked_as_a_server_is() -> None:
    def asked(server: socket.socket) -> tuple[list[str], list[int]]:
        request, descriptors, *_ = socket.recv_fds(server, 65536, 2)
        return json.loads(request), descriptors

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ready, pid = fork_server.STATUS.pack(0), fork_server.STATUS.pack(2**22)
    with ours, theirs:
        theirs.send(ready), theirs.send(pid)
        branch = Forks(ours).branch(["json"], {"OWN": "1"}, shared="s", compiles="c")
        request, (status, pipe) = asked(theirs)
        imports = str(Imports(["json"], shared="s", compiles="c"))
        assert request == [fork_server.__name__, "branch", '{"OWN": "1"}', imports]
        with socket.socket(fileno=pipe) as listens:
            listens.send(ready), listens.send(pid)
            assert branch.imported()
            child = branch.call(os.getpid)
            request, (ended,) = asked(listens)
            assert (request, child.pid, child.code()) == (["posix", "getpid"], 2**22, None)
            os.write(ended, fork_server.STATUS.pack(3))
            assert child.code() == 3
        os.write(status, fork_server.STATUS.pack(9))
        with pytest.raises(ServerLost, match="ended with status 9"):
            branch.call(os.getpid)
        for descriptor in (status, ended):
            os.close(descriptor)


def test_what_a_users_module_raises_is_left_to_its_trial(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    (tmp_path / "closed.py").write_text("raise PermissionError(13, 'Permission denied', '/srv/data/x')")
    (tmp_path / "lacking.py").write_text("import pipelines.that_is_not")
    assert serve("closed", "lacking").end() == (0, "")


def test_a_server_that_cannot_read_its_own_code_or_the_copies_of_a_users_says_so_in_one_line(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the folder of a sweep, which has a copy of the code, is closed while the server imports."""
    gone = "perfsweep.pipelines.trial.that_is_gone"
    status, said = serve("a_module_that_a_user_has_not", gone).end()
    assert status == 1
    assert said == f"the server that forks trials cannot read its own code: No module named '{gone}'\n"
    copies = f"/{'too-long' * 40}"
    monkeypatch.setenv(VARIABLE, copies)
    with pytest.raises(SystemExit) as end:
        fork_server.preload(Imports(["toys.spinner"]))
    assert end.value.code == f"the server that forks trials cannot read {copies}: File name too long"


def test_a_pack_that_dies_while_it_waits_for_an_answer_makes_no_server_complain(
    serve: Callable[..., Server],
) -> None:
    server = serve("json")
    ended, status = os.pipe()
    socket.send_fds(server._requests, [json.dumps(["os", "getpid"]).encode()], [status])
    assert server.end() == (0, "")
    for descriptor in (ended, status):
        os.close(descriptor)


def test_a_server_that_was_stopped_ends_with_its_pack(tmp_path: Path) -> None:
    """As one that rests while arms need its core, when the pack is killed."""
    pack = """
import os, signal, socket, subprocess, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
words = [sys.executable, "-m", "perfsweep.pipelines.trial.fork_server", str(theirs.fileno())]
server = subprocess.Popen(words, pass_fds=[theirs.fileno()], start_new_session=True)
theirs.close()
ours.recv(16)
server.send_signal(signal.SIGSTOP)
os.waitid(os.P_PID, server.pid, os.WSTOPPED)
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", pack], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    until(lambda: _ended(int(done.stdout)))


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_daemon_ends_with_the_child_that_started_it_and_no_sooner(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    files = [tmp_path / name for name in ("one", "other")]
    children = [server.ask("daemon", str(file), str(file.with_suffix(".end"))) for file in files]
    until(lambda: all(file.exists() for file in files))
    one, other = (int(file.read_text()) for file in files)
    wait([server.ask("quiet")], 60)
    assert not _ended(one) and not _ended(other)
    files[0].with_suffix(".end").touch()
    wait(children[:1], 60)
    until(lambda: _ended(one))
    assert not _ended(other), "it is another child's"
    server.end()
    until(lambda: _ended(other))


def test_a_server_that_never_completes_its_imports_is_given_up_and_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forks, "START_S", 0.01)
    killed: list[bool] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        silent = Forks(ours)
        monkeypatch.setattr(silent, "_kill", lambda: killed.append(True))
        with pytest.raises(ServerLost, match=r"trials has not answered within 0\.01 s"):
            silent.call(os.getpid)
    assert killed


def test_a_server_that_was_killed_is_named_with_its_status(serve: Callable[..., Server]) -> None:
    server = serve("colorsys")
    server.process.kill()
    until(server.imported)
    with pytest.raises(ServerLost, match="the server that forks trials ended with status -9"):
        for _ in range(2):
            server.ask("quiet")


def test_a_child_that_outlives_its_server_does_not_hide_the_end(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve()
    child = server.ask("rest", str(tmp_path / "file"))
    until((tmp_path / "file").exists)
    server.process.kill()
    server.process.wait()
    try:
        assert server._requests.recv(1, socket.MSG_DONTWAIT) == b"", "who asks would wait for ever"
    finally:
        os.kill(child.pid, signal.SIGKILL)
