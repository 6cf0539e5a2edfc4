"""A real Slurm for the tests of this folder: one for each worker of pytest, gone when it ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench import Bench
from dev_slurm.cluster import DevCluster, free_port, installed, remove
from dev_slurm.settings import Settings
from stand_ins import PROGRAMS, program

MakeCluster = Callable[..., DevCluster]


@pytest.fixture(scope="session")
def make_cluster() -> Iterator[MakeCluster]:
    """Starts clusters, and removes them at the end of the session."""
    if missing := installed():
        if "slurm" in os.environ.get("PERFSWEEP_NO_SKIP", ""):
            pytest.fail(missing)
        pytest.skip(missing)
    made: list[DevCluster] = []

    def make(**knobs: object) -> DevCluster:
        root = Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp"))  # short: a socket's path has 107 characters
        values = {"root": root, "port": free_port(), "max_array": 21, "kill_wait_s": 2, **knobs}
        cluster = DevCluster(Settings(**values))  # type: ignore[arg-type]
        made.append(cluster)
        cluster.up()
        return cluster

    yield make
    for cluster in made:
        remove(cluster)


@pytest.fixture(scope="session")
def cluster(make_cluster: MakeCluster) -> DevCluster:
    """The cluster most tests share."""
    return make_cluster()


@pytest.fixture
def bench(cluster: DevCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A folder for jobs on the shared cluster; whatever still runs is cancelled afterwards."""
    yield Bench(cluster, tmp_path)
    cluster.client("scancel", "--me", check=False)
    if getattr(request.node, "failed", False):
        shutil.copytree(cluster.settings.root / "log", tmp_path / "slurm-log", dirs_exist_ok=True)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs before the PATH: stand-ins for Slurm's, which note how often they are called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    for name in PROGRAMS:
        program(programs, name, "exit 0")
    return programs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Keep Slurm's logs where a test failed."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.failed = True  # type: ignore[attr-defined]
    return report
