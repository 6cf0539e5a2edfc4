"""Fixtures for all tests: small sweeps of a toy workload, planned and run for real."""

from __future__ import annotations

import dataclasses
import gc
import os
import readline  # noqa: F401 - see below
import signal
import sys
from collections.abc import Callable, Iterator
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

# A loaded machine is slow, not wrong; and a test that fails must fail again when it is run again.
settings.register_profile("perfsweep", deadline=None, derandomize=True)
settings.load_profile("perfsweep")

pytest_plugins = ["budget"]

TOY = "toys.spinner:Spinner"

MakeCommand = Callable[..., SweepCommand]


@pytest.fixture(autouse=True, scope="module")
def imports_out_of_the_collectors_sight() -> None:
    """Full collections of a workload, and Python's own, take milliseconds instead of a third of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def environment_put_back() -> Iterator[None]:
    """What packs that run inside the test process set for their children stays out of other modules."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def back_out_of_its_sight(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As before, once a workload of the toggle `gc` has put everything back."""
    unfreeze, calls = gc.unfreeze, []
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append(unfreeze()))
    yield
    if calls:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def servers_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps that run inside the test process fork from one server; those of commands have their own."""
    for module in TAKEN:
        monkeypatch.setattr(f"{module}.ForkServer", shared_server)


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


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A shell without any W&B variables, account or proxy, and an empty home."""
    for name in list(os.environ):
        if name.startswith("WANDB_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("NETRC", raising=False)
    return monkeypatch


@pytest.fixture
def backend(shell: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A W&B server on 127.0.0.1 that the shell's account may write to."""
    with Loopback() as server:
        shell.setenv("WANDB_BASE_URL", server.url)
        shell.setenv("WANDB_API_KEY", KEY)
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
