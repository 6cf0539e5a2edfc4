"""What a launch hands to its executor, what becomes of jobs that fail, and whose folder it is."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded import Built, build

from perfsweep.pipelines.config.types import ClusterConfig
from perfsweep.pipelines.execution import launch, submitted
from perfsweep.pipelines.store import code_snapshot, writers
from perfsweep.pipelines.store.records import Manifest, Outcome, Pack, SweepFolder
from perfsweep.slurm import jobs
from perfsweep.slurm.jobs import Executor, ExecutorContext, Job, JobState
from perfsweep.slurm.states import End
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

MANY = tuple(Pack(id=f"p00{n}", orders=(), start="fork") for n in range(3))


class Place(Executor):
    """A place that notes what it is told, and whose jobs end as a test says."""

    remote = False
    context: ExecutorContext
    known: dict[str, bool] = {}
    ends: dict[str, JobState] = {}
    told: list[Any] = []

    @classmethod
    def of(cls, context: ExecutorContext) -> Place:
        Place.context = context
        return cls()

    @classmethod
    def submitted(cls, folder: Path) -> dict[str, bool]:
        return cls.known

    def submit(self, jobs) -> None:
        self.told.append(("submit", [job.name for job in jobs]))

    def submit_last(self, job: Job) -> None:
        self.told.append(("last", job.name))

    def follow(self, names) -> None:
        self.told.append(("follow", set(names)))

    def poll(self) -> dict[str, JobState]:
        if "interrupted" in self.ends:
            signal.raise_signal(signal.SIGUSR2)
        return self.ends

    def cancel(self, names=None) -> int:
        self.told.append("cancel")
        return 1

    def settle(self) -> None:
        self.told.append("settle")

    def notes(self) -> dict[str, str]:
        return {"p001": "memory ran out"}


class Elsewhere(Place):
    """The same, far away."""

    remote = True


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Place]]:
    classes = {"here": f"{__name__}:Place", "there": f"{__name__}:Elsewhere"}
    monkeypatch.setattr(jobs, "EXECUTORS", classes)
    monkeypatch.setattr(submitted, "EXECUTORS", classes)
    monkeypatch.setattr(launch, "jobs_of", lambda folder, manifest, packs, *rest: [job(p.id) for p in packs])
    monkeypatch.setattr(launch, "environment", lambda *words: {})
    monkeypatch.setattr(code_snapshot, "take", lambda folder, *shared: tmp_path)
    monkeypatch.setattr(code_snapshot, "latest", lambda folder: tmp_path)
    monkeypatch.setattr(code_snapshot, "digest", lambda code: "d1gest")
    for name, value in (("known", {}), ("ends", {}), ("told", [])):
        monkeypatch.setattr(Place, name, value)
    yield Place


def job(name: str) -> Job:
    return Job(name, ("run", name), Path("log.txt"))


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path / "sweep", packs=MANY)


def launched(built: Built, executor: str = "here", device: Device | None = None, **changes: Any):
    retry = changes.pop("retry", ())
    cluster = ClusterConfig(executor=executor, **changes)
    packs = list(built.manifest.packs)
    return launch.launch(built.folder, built.manifest, packs, cluster, device or Device(), retry)


def test_packs_that_broke_off_are_named_with_their_reason(place: type[Place], built: Built) -> None:
    place.ends = {"p000": JobState.ENDED, "p001": JobState.FAILED, "p002": JobState.CANCELLED}
    done = launched(built)
    assert list(done) == ["p001", "p002"]
    assert done["p001"].startswith("memory ran out\n")
    place.ends = dict.fromkeys(place.ends, JobState.ENDED)
    assert not launched(built)


def test_a_signal_to_this_machine_ends_its_jobs_and_handlers_are_put_back(
    place: type[Place], built: Built
) -> None:
    place.ends = {"interrupted": JobState.RUNNING}
    before = signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)
    assert launch._as_ctrl_c not in before, "an earlier launch has put them back too"
    with pytest.raises(KeyboardInterrupt):
        launched(built)
    assert place.told[-1] == "cancel"
    assert (signal.getsignal(signal.SIGUSR2), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(
    ("job", "end", "oom", "moved", "expected"),
    [
        ("p000", End.TIMEOUT, set(), {"p000"}, True),
        ("p000", End.TIMEOUT, {"p000"}, set(), False),
        ("p000", End.OOM, {"p000"}, set(), True),
        ("p000+p001", End.OOM, {"p000", "p001"}, set(), False),
        ("collect", End.TIMEOUT, {"p000"}, {"p000"}, False),
    ],
)
def test_a_try_has_advanced_when_it_finished_more_or_when_one_arm_took_the_memory(
    place: type[Place],
    built: Built,
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    end: End,
    oom: set[str],
    moved: set[str],
    expected: bool,
) -> None:
    monkeypatch.setattr(writers, "record_oom", lambda folder, pack: pack.id in oom)
    monkeypatch.setattr(writers, "advanced", lambda folder, manifest, pack: pack.id in moved)
    launched(built)
    assert place.context.advanced(job, end) is expected


@pytest.mark.parametrize(
    ("jobs", "followed"),
    [
        (["p000+p001", "p002"], {"p000+p001", "p002"}),
        (["p000+p001", "p001", "p000"], {"p000", "p001"}),
        (["p000+p001", "p001"], {"p001"}),
    ],
)
def test_who_follows_takes_over_the_latest_job_of_each_pack(
    place: type[Place], built: Built, jobs: list[str], followed: set[str]
) -> None:
    place.known = dict.fromkeys(jobs, True)
    launch.resume(built.folder, built.manifest, ClusterConfig(executor="there"))
    assert place.told == [("follow", followed)]


def test_jobs_elsewhere_are_followed_by_one_that_collects_and_hear_what_was_asked(
    place: type[Place], built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[Any]()
    pack_run = SimpleNamespace(run=lambda: ran.append("ran"))
    monkeypatch.setattr(launch, "PackRun", lambda *given: ran.append(given[2:]) or pack_run)
    place.ends = dict.fromkeys(("p000", "p001", "p002"), JobState.ENDED)
    device = Device("cuda", 4)
    assert launched(built, "there", device, retry=("oom", "failed"), slots=3, collect=True) == {}
    assert place.told == [("submit", ["p000", "p001", "p002"]), ("last", "collect")]
    asked = place.context
    assert (asked.folder, asked.name, asked.code, asked.digest) == (
        *(built.folder.path, "demo", tmp_path),
        "d1gest",
    )
    assert (asked.slots, asked.gpus, asked.forgiven) == (3, 4, {End.OOM})
    asked.call(job("p001"))
    assert ran == [(MANY[1], frozenset({Outcome.OOM, Outcome.FAILED})), "ran"]
    place.told.clear()
    launched(built, "there", collect=False)
    assert [what for what, _ in place.told] == ["submit"] and place.context.gpus == 0


def test_what_is_started_here_is_noted_with_its_command(place: type[Place], built: Built) -> None:
    place.ends = {"p000": JobState.ENDED}
    launched(built)
    lines = map(json.loads, built.folder.submissions_file.read_text().splitlines())
    noted = [{name: line[name] for name in ("pack", "executor", "command")} for line in lines]
    assert noted == [{"pack": p.id, "executor": "here", "command": ["run", p.id]} for p in MANY]


@pytest.mark.parametrize(("lives", "told"), [([], []), (["job"], [("follow", set()), "settle"])])
def test_only_a_sweep_with_jobs_that_may_live_is_settled(
    place: type[Place], built: Built, lives: list, told: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.known = {"collect": True}
    monkeypatch.setattr(launch, "alive", lambda folder: {"p000": [], "p001": lives})
    launch.settle(built.folder, built.manifest, ClusterConfig(executor="there"))
    assert place.told == told


@pytest.mark.parametrize("environment", [None, ".venv-b"])
def test_a_folder_gets_the_plan_the_code_and_where_an_environment_is_measured_its_libraries(
    place: type[Place], built: Built, environment: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = list[Any]()
    version: Any = SimpleNamespace(environment=environment)
    sweep = built.manifest.sweep.model_copy(update={"versions": (version,), "sources": ("mine.py",)})
    for name in ("take_sources", "take_libraries"):
        monkeypatch.setattr(code_snapshot, name, lambda *given, name=name: taken.append((name, given[0])))
    monkeypatch.setattr(
        launch.tree, "keep", lambda place, one, sources: taken.append((place, one, [*sources]))
    )
    folder = SweepFolder(built.folder.path.with_name("other"))
    plan = built.manifest.model_copy(update={"sweep": sweep})
    monkeypatch.setattr(folder, "write_manifest", taken.append)
    launch.prepare(folder, plan, "a: 1")
    code = folder.code_dir
    libraries = [("take_libraries", code)] if environment else []
    assert taken == [plan, ("take_sources", code), *libraries, (code, version, [Path("mine.py")])]
    assert (folder.path / ".gitignore").read_text() == "*\n" and folder.config_file.read_text() == "a: 1"


def moved(manifest: Manifest, **changes: Any) -> Manifest:
    return manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("theirs", "ours", "refused"),
    [
        ({"origin": "a.py"}, {"origin": "b.py"}, False),
        ({"origin": "a.py"}, {"origin": "a.py", "code": "new"}, False),
        ({"origin": ""}, {"origin": "b.py", "code": "new"}, False),
        ({"origin": "a.py"}, {"origin": "b.py", "code": "new"}, True),
        ({"origin": "a.py"}, {"origin": "b.py", "config": {"size": 3}}, True),
    ],
    ids=["the same code moved", "its code changed", "of no origin", "other code", "another configuration"],
)
def test_a_folder_of_another_workload_is_left_alone(
    built: Built, theirs: dict[str, Any], ours: dict[str, Any], refused: bool
) -> None:
    built.folder.write_manifest(moved(built.manifest, **theirs))
    other = moved(built.manifest, **ours)
    if refused:
        before = built.folder.manifest_file.read_bytes()
        with pytest.raises(ConfigError, match=r"holds a sweep of a\.py, and this one is of b\.py; choose"):
            launch.prepare(built.folder, other, "")
        assert built.folder.manifest_file.read_bytes() == before
    else:
        submitted.refuse_other_workload(built.folder, other)


def test_a_folder_that_cannot_be_written_is_refused_with_the_reason(built: Built, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"/file/sweep.*Not a directory"):
        launch.prepare(SweepFolder(tmp_path / "file/sweep"), built.manifest, "")
