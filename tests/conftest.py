"""Fixtures for all tests: small sweeps of a toy workload, planned and run for real."""

from __future__ import annotations

import dataclasses
import gc
import os
import readline  # noqa: F401 - see below
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

SUPPORT = Path(__file__).with_name("support")
sys.path.insert(0, str(SUPPORT))  # toys and declared tables are imported by name, as a user's module would be
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Readline, which pytest's debugger brings along, tells processes that start here that lines have 80 columns.
os.unsetenv("COLUMNS")
# A shell that starts the tests in the background has Ctrl-C ignored, and every command that they start would
# inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()

from installed_wheel import PLACE  # noqa: E402
from loopback import Loopback  # noqa: E402
from loopback.server import KEY  # noqa: E402
from servers import TAKEN, shared_server  # noqa: E402

from perfsweep.pipelines.config.types import (  # noqa: E402
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.store import code_snapshot  # noqa: E402
from perfsweep.workloads import snapshot  # noqa: E402

# A loaded machine is slow, not wrong; and a test that fails must fail again when it is run again.
settings.register_profile("perfsweep", deadline=None, derandomize=True)
settings.load_profile("perfsweep")

pytest_plugins = ["budget"]

TOY = "toys.spinner:Spinner"

MakeCommand = Callable[..., SweepCommand]


def pytest_collection_finish() -> None:
    """What is imported stays: while it was, there was nothing to collect, and later there is seldom much."""
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def imports_out_of_the_collectors_sight(collector: Collector) -> None:
    """Full collections of a workload, and Python's own, take milliseconds instead of a third of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def environment_put_back() -> Iterator[None]:
    """What packs that run inside the test process set for their children stays out of other modules."""
    before, finders = dict(os.environ), [*sys.meta_path]
    yield
    ours = snapshot.__name__  # a library's own finder, such as that of six, must stay
    sys.meta_path[:] = [one for one in sys.meta_path if one in finders or type(one).__module__ != ours]
    os.environ.clear()
    os.environ.update(before)


class Collector:
    """Counts how often something was frozen; how many objects that are, Python counts one by one."""

    def __init__(self) -> None:
        self.times, self._freeze, self._unfreeze = 0, gc.freeze, gc.unfreeze

    def freeze(self) -> None:
        self._freeze()
        self.times += 1

    def unfreeze(self) -> None:
        self._unfreeze()
        self.times = 0


@pytest.fixture(autouse=True, scope="session")
def collector() -> Iterator[Collector]:
    """Whether everything is out of the collector's sight, at no cost."""
    collector = Collector()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", collector.freeze)
        patch.setattr(gc, "unfreeze", collector.unfreeze)
        patch.setattr(gc, "get_freeze_count", lambda: collector.times)
        yield collector


@pytest.fixture(autouse=True)
def back_out_of_its_sight(collector: Collector) -> Iterator[None]:
    """As before, once a workload of the toggle `gc` has put everything back."""
    yield
    if not collector.times:
        gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def servers_are_shared() -> Iterator[None]:
    """Sweeps that run inside the test process fork from one server; those of commands have their own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in TAKEN:
            patch.setattr(f"{module}.ForkServer", shared_server)
        yield


@pytest.fixture(autouse=True, scope="session")
def code_is_copied_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sweeps that run inside the test process share one copy of the packages: it has a thousand files."""
    take, shared = code_snapshot.take, tmp_path_factory.mktemp("code")

    def linked(code_dir: Path, _: Path | None = None) -> Path:
        return take(code_dir, shared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_snapshot, "take", linked)
        yield


@pytest.fixture(autouse=True, scope="session")
def wheel_is_built_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Workers of pytest-xdist have folders of their own in the one of the run."""
    own = tmp_path_factory.getbasetemp()
    os.environ[PLACE] = str(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture(autouse=True, scope="session")
def nothing_waits_for_the_disk() -> Iterator[None]:
    """A test's files need not outlive a loss of power; those of the processes it starts still could."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def command(tmp_path: Path) -> MakeCommand:
    """Builds the configuration of a small sweep of the toy workload."""

    def make(*designs: DesignConfig, workload: str = TOY, **changes: object) -> SweepCommand:
        measure = MeasureConfig(
            rounds=2,
            servers=1,
            iterations=8,
            warmup_max=10,
            evidence_iterations=4,
            counting_iterations=2,
            timeout_s=60,
            repeats=0,
            timed_parity=False,  # one more trial of each arm
        )
        measure = dataclasses.replace(measure, **dict(changes.pop("measure", {})))  # type: ignore[call-overload]
        values = {
            "workload": {"name": workload},
            "measure": measure,
            "cluster": ClusterConfig(executor="inprocess"),
            "sweep": SweepConfig(
                name="toy", designs=list(designs), references=dict(changes.pop("references", {"naive": {}}))
            ),  # type: ignore[call-overload]
            "runs": str(tmp_path / "runs"),
        }
        return SweepCommand(**{**values, **changes})  # type: ignore[arg-type]

    return make


def bare(shell: pytest.MonkeyPatch, home: Path) -> None:
    """Take all W&B variables, accounts and proxies from a shell, and give it an empty home."""
    for name in list(os.environ):
        if name.startswith("WANDB_") or name.lower().endswith("_proxy"):
            shell.delenv(name)
    home.mkdir()
    shell.setenv("HOME", str(home))
    shell.delenv("NETRC", raising=False)


@contextmanager
def serving(shell: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A W&B server on 127.0.0.1 that the shell's account may write to."""
    with Loopback() as server:
        shell.setenv("WANDB_BASE_URL", server.url)
        shell.setenv("WANDB_API_KEY", KEY)
        yield server


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A shell without any W&B variables, account or proxy, and an empty home."""
    bare(monkeypatch, tmp_path / "home")
    return monkeypatch


@pytest.fixture
def backend(shell: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A server for one test."""
    with serving(shell) as server:
        yield server


@pytest.fixture(scope="module")
def shared_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """A server for tests of a module that only look at what was published."""
    with pytest.MonkeyPatch.context() as shell:
        bare(shell, tmp_path_factory.mktemp("shell") / "home")
        with serving(shell) as server:
            yield server


def pytest_unconfigure(config: pytest.Config) -> None:
    """Last of all, say what could not be tested on this machine."""
    import browser
    from dev_slurm.cluster import installed

    if hasattr(config, "workerinput"):
        return
    for what, missing in (
        ("test on a real Slurm", installed()),
        ("look at the report in a browser", browser.missing()),
    ):
        if missing:
            print(f"\nSKIPPED every {what}: {missing}")
