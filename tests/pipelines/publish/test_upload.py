"""Records in, runs on a server out: complete, once, and repaired whatever became of them there."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from loopback import Loopback
from loopback.store import StoredRun
from recorded import (
    EPOCH_NS,
    FAST,
    IDENTITY,
    NAIVE,
    PACK,
    TIMED,
    WARM,
    Built,
    arrays_of,
    build,
    publish_here,
    snapshot,
)

from perfsweep.pipelines.api import Sweep
from perfsweep.pipelines.publish import worker
from perfsweep.pipelines.publish.content import RunContent, Segment, generation_of
from perfsweep.pipelines.publish.published import Published, PublishedRun
from perfsweep.pipelines.publish.publishing import (
    REQUESTS_OF_A_COMPARISON,
    REQUESTS_OF_A_PROCESS,
    REQUESTS_OF_A_RUN,
    publish,
)
from perfsweep.pipelines.publish.worker import Decision, OnServer, Step, decide
from perfsweep.pipelines.store.files import write_arrays
from perfsweep.pipelines.store.records import SweepFolder


@pytest.fixture
def online(tmp_path: Path, backend: Loopback) -> Built:
    """A recorded sweep that is to be published to the backend."""
    return build(tmp_path / "demo", mode="online")


@dataclass(frozen=True)
class Sent:
    """A sweep that was published, with what its folder held before and with what was said."""

    built: Built
    backend: Loopback
    before: dict[str, int]
    done: Published


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory, shared_backend: Loopback) -> Sent:
    built = build(tmp_path_factory.mktemp("sent") / "demo", mode="online")
    before = snapshot(built.folder.path)
    return Sent(built, shared_backend, before, send(built))


def send(built: Built) -> Published:
    """Publish to the shell's server, without processes of its own."""
    return publish_here(built, server=os.environ["WANDB_BASE_URL"])


def notes(built: Built) -> list[str]:
    return [run.note for run in send(built).runs]


def run_of(backend: Loopback, built_arm: str, suffix: str = "") -> StoredRun:
    return backend.runs()[f"{IDENTITY}-{built_arm}-p000{suffix}"]


def test_every_row_arrives_once_with_its_number_and_its_time(sent: Sent) -> None:
    backend = sent.backend
    assert sent.done.complete
    assert [(run.rows_produced, run.rows_before, run.rows_found) for run in sent.done.runs] == [
        (30, 0, 30),
        (20, 0, 20),
    ]
    assert backend.rows() == sent.built.produced == 50
    rows = [row for row in run_of(backend, NAIVE.id).rows if "iter/index" in row]
    walls = np.concatenate([arrays_of(NAIVE, number)["wall_ns"] for number in range(3)]) / 1e6
    assert [row["iter/index"] for row in rows] == list(range(3 * TIMED))
    assert [row["iter/ms"] for row in rows] == walls.tolist()
    assert sum("warmup/index" in row for row in run_of(backend, NAIVE.id).rows) == 3 * WARM
    new = set(snapshot(sent.built.folder.path)) - set(sent.before)
    assert {Path(name).suffix for name in new if "/.locks" not in name} == {".generation"}
    assert rows[0]["_timestamp"] == pytest.approx(EPOCH_NS / 1e9 + walls[0] / 1e3, abs=1e-6)


def test_the_full_series_of_all_arms_is_one_file_of_the_comparison(online: Built, backend: Loopback) -> None:
    assert Sweep(online.folder, online.manifest).comparison
    send(online)
    (artifact,) = [one for one in backend.store.artifacts.values() if one.type == "series"]
    assert (artifact.state, artifact.collection) == ("COMMITTED", f"series-{IDENTITY}-compare")
    with ZipFile(BytesIO(artifact.files["series.zip"])) as archive:
        for number in range(3):
            file = online.folder.trial_dir(online.spec(NAIVE, number)) / "iterations.npz"
            assert archive.read(f"{NAIVE.id}/p000-round{number:03d}.npz") == file.read_bytes()
        assert len(archive.namelist()) == 5


def requests_for(copies: int, place: Path, backend: Loopback) -> int:
    """Publish and compare the arms in some packs, and count what the server is asked."""
    packs = tuple(PACK.model_copy(update={"id": f"p{number:03d}"}) for number in range(copies))
    built = build(place, mode="online", packs=packs)
    for pack in packs[1:]:
        for arm in (NAIVE, FAST):
            spec = built.spec(arm, 0, pack=pack.id)
            built.add(spec, arrays_of(arm, 0), units=70.0, iterations=TIMED, region_ns=5_000_000)
    assert Sweep(built.folder, built.manifest).comparison
    before = len(backend.requests)
    done = send(built)
    assert done.complete and len(done.runs) == 2 * copies + 1
    return len(backend.requests) - before


@pytest.mark.slow
def test_a_run_costs_few_requests_and_the_rest_does_not_grow(tmp_path: Path, backend: Loopback) -> None:
    one, three = (requests_for(copies, tmp_path / f"{copies}", backend) for copies in (1, 3))
    assert three - one <= 4 * REQUESTS_OF_A_RUN <= 4 * 12
    assert one <= REQUESTS_OF_A_COMPARISON + REQUESTS_OF_A_PROCESS + 2 * REQUESTS_OF_A_RUN


def test_what_will_be_asked_of_the_server_is_said_before_it_is(online: Built, backend: Loopback) -> None:
    heard: list[tuple[str, int]] = []
    publish(online.folder, say=lambda line: heard.append((line, len(backend.requests))))
    ((line, asked),) = heard
    assert line == "about 62 requests at most, 10 for each of 2 runs: 1 minute at 200 a minute"
    assert asked == 1, "the probe"
    assert len(backend.requests) <= 62


def test_publishing_again_sends_nothing_and_a_copy_of_the_folder_neither(
    online: Built, backend: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    send(online)
    before = len(backend.requests)
    assert notes(online) == ["already complete"] * 2
    assert not [
        asked for asked in backend.requests[before:] if "file_stream" in asked or "UpsertBucket" in asked
    ]
    assert backend.rows() == 50
    shutil.copytree(online.folder.path, tmp_path / "copy")
    assert notes(Built(SweepFolder(tmp_path / "copy"), online.manifest)) == ["already complete"] * 2
    assert not (tmp_path / "tmp" / "team").exists(), "which listing runs makes where temporary files go"


def test_a_new_round_is_appended_to_the_run_that_is_there(tmp_path: Path, backend: Loopback) -> None:
    online = build(tmp_path / "demo", mode="online")
    later = tmp_path / "later"
    for arm in (NAIVE, FAST):
        shutil.move(online.folder.trial_dir(online.spec(arm, 2)), later / arm.id)
    assert notes(online) == ["uploaded"] * 2
    assert backend.rows() == 40
    for arm in (NAIVE, FAST):
        shutil.move(later / arm.id, online.folder.trial_dir(online.spec(arm, 2)))
    assert notes(online) == ["continued"] * 2
    rows = [row for row in run_of(backend, NAIVE.id).rows if "iter/index" in row]
    assert [(row["iter/index"], row["iter/round"]) for row in rows] == [
        (i, i // TIMED) for i in range(3 * TIMED)
    ]
    assert [row["_step"] for row in run_of(backend, NAIVE.id).rows] == list(range(30))
    assert run_of(backend, FAST.id).summary_values["outcome"] == "oom"


def test_a_run_that_was_damaged_on_the_server_is_replaced_from_records_and_named_where_it_must_stay(
    online: Built, backend: Loopback
) -> None:
    send(online)
    del run_of(backend, FAST.id).history[5:9]
    done = send(online)
    assert done.complete
    assert [run.note for run in done.runs] == ["already complete", "replaced"]
    assert sorted(backend.runs()) == [f"{IDENTITY}-{NAIVE.id}-p000", f"{IDENTITY}-{FAST.id}-p000-g2"]
    assert [row["iter/index"] for row in run_of(backend, FAST.id, "-g2").rows if "iter/index" in row] == list(
        range(2 * TIMED)
    )
    write_arrays(online.folder.trial_dir(online.spec(FAST, 1)) / "iterations.npz", arrays_of(FAST, 7))
    backend.deletions_allowed = False
    old = f"{IDENTITY}-{FAST.id}-p000-g2"
    assert notes(online)[1] == f"replaced; delete {old} by hand, they hold parts of the same"


def test_run_folders_that_are_there_are_not_synced_a_second_time(online: Built, backend: Loopback) -> None:
    assert publish_here(online).complete
    assert send(online).complete
    for arm in (NAIVE, FAST):
        assert (online.run_folder(arm) / f"run-{IDENTITY}-{arm.id}-p000.wandb.synced").exists()


def content(*counts: int) -> RunContent:
    segments = tuple(Segment(f"s{number}", count, lambda: iter(())) for number, count in enumerate(counts))
    fields = dict.fromkeys(("arm", "label", "pack", "name", "project", "group", "job_type"), "x")
    return RunContent(
        run_id="r", entity=None, tags=(), config={}, segments=segments, summary={}, exit_code=0, **fields
    )


def there(lines: int, *segments: str, generation: int = 1, digest: str = "") -> OnServer:
    return OnServer("r", generation, lines, digest, segments)


WANTED = content(3, 4)
COMPLETE = there(7, "s0", "s1", digest=WANTED.digest())

DECISIONS = [
    ("nothing there", [], 0, Step.NEW, 1, 0),
    ("deleted after it was begun", [], 2, Step.NEW, 3, 0),
    ("complete", [COMPLETE], 1, Step.NOTHING, 1, 2),
    ("complete, with a damaged later one", [COMPLETE, there(2, "s0", generation=2)], 2, Step.NOTHING, 1, 2),
    ("the first round", [there(3, "s0")], 1, Step.APPEND, 1, 1),
    ("all rounds, other summary", [there(7, "s0", "s1", digest="old")], 1, Step.APPEND, 1, 2),
    ("a row too few", [there(2, "s0")], 1, Step.NEW, 2, 0),
    ("a row too many", [there(8, "s0", "s1", digest=WANTED.digest())], 1, Step.NEW, 2, 0),
    ("another first round", [there(3, "other")], 1, Step.NEW, 2, 0),
    ("rounds that were given up", [there(9, "s0", "s1", "s2")], 1, Step.NEW, 2, 0),
    ("rows without a word about them", [there(7)], 1, Step.NEW, 2, 0),
    ("an empty run", [there(0)], 1, Step.NEW, 2, 0),
]


@pytest.mark.parametrize(
    ("case", "found", "used", "step", "generation", "first"), DECISIONS, ids=[row[0] for row in DECISIONS]
)
def test_what_is_done_follows_from_what_is_there(
    case: str, found: list[OnServer], used: int, step: Step, generation: int, first: int
) -> None:
    decision = decide(WANTED, found, used)
    assert (decision.step, decision.generation, decision.first) == (step, generation, first)
    kept = [] if step is Step.NEW else [run for run in found if run.generation == generation]
    assert decision == Decision(step, generation, first, tuple(run for run in found if run not in kept))


@pytest.mark.parametrize(("name", "generation"), [("r", 1), ("r-g12", 12), ("r2", None), ("r-gx", None)])
def test_generations_of_a_run_are_told_by_name(name: str, generation: int | None) -> None:
    assert generation_of("r", name) == generation


class Listed:
    """A server that has these runs whenever it is asked, one list after the other."""

    def __init__(self, *answers: list[OnServer]) -> None:
        self.answers = list(answers)

    def generations(self, content: RunContent, *, fresh: bool = False) -> list[OnServer]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Uploads content of seven rows to a server; what it says, and the names under which it was sent."""
    sent = list[Any]()

    def upload_to(server: Listed, *refusals: str, log: str = "") -> tuple[PublishedRun, list[Any]]:
        left = list(refusals)

        def write_run(staging: Path, content: RunContent, name: str, **own: Any) -> Any:
            sent.append((name, len(own["segments"]), own["resume"]))
            if left:
                raise RuntimeError(left.pop(0))
            return tmp_path, f"http://{name}", "a remark"

        folder = SweepFolder(tmp_path / "demo")
        folder.wandb_dir.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(worker, "write_run", write_run)
        monkeypatch.setattr(worker, "SETTLE_S", 0.0)
        monkeypatch.setattr(worker, "refusal_in", lambda path: log or None)
        return worker.upload(folder, WANTED, server, tmp_path), sent  # type: ignore[arg-type]

    return upload_to


def named(run: OnServer, generation: int) -> OnServer:
    name = WANTED.named(generation)
    return dataclasses.replace(
        run, name=name, generation=generation, handle=SimpleNamespace(url=f"of {name}")
    )


def test_rows_that_never_arrive_are_sent_as_often_as_is_worth_it(tried: Any) -> None:
    done, sent = tried(Listed([], [named(there(5, "s0"), 1)], [named(there(6), 2)]))
    assert [name for name, *_ in sent] == ["r", "r-g2"]
    assert (done.rows_found, done.rows_before, done.where) == (6, 0, "http://r-g2")
    assert (done.note, done.remark) == ("W&B holds 6 of 7 rows after 2 tries", "a remark")


def test_a_server_that_has_had_enough_is_sent_nothing_more(tried: Any) -> None:
    done, sent = tried(Listed([named(there(9), 1)]), log="W&B is busy (429)")
    assert len(sent) == 1 and done.note == "W&B is busy (429)"
    assert (done.rows_found, done.rows_before) == (6, 9), "what holds too much is not whole"


def test_a_run_that_somebody_deleted_is_sent_under_another_name(tried: Any) -> None:
    whole = named(there(7, "s0", "s1", digest=WANTED.digest()), 2)
    done, sent = tried(Listed([], [whole]), "run r was previously created and deleted")
    assert sent == [("r", 2, False), ("r-g2", 2, False)]
    assert (done.note, done.where, done.rows_found) == ("uploaded", "http://r-g2", 7)
    with pytest.raises(RuntimeError, match="no room"):
        tried(Listed([]), "no room")


@pytest.mark.parametrize(
    ("lines", "indices", "whole"), [(3, [0, 1, 2], True), (2, [0, 1], False), (3, [0, 1, 1], False)]
)
def test_lost_and_doubled_rows_show_by_their_indices(lines: int, indices: list[int], whole: bool) -> None:
    rows = [{"iter/index": number} for number in range(3)]
    wanted = dataclasses.replace(content(3), segments=(Segment("s0", 3, lambda: iter([*rows])),))
    history = [{"iter/index": index} for index in indices]
    handle = SimpleNamespace(scan_history=lambda keys, use_cache: iter(history))
    run = dataclasses.replace(there(lines, digest=wanted.digest()), handle=handle)
    assert worker._is_whole(wanted, run) is whole


@pytest.mark.parametrize(
    ("has_files", "media", "logged", "whole"),
    [
        (False, False, [], True),
        (True, False, ["history"], True),
        (True, False, ["run-r-torch"], False),
        (False, True, ["run-r-torch"], True),
        (False, True, ["run-s-torch"], False),
        (True, True, ["history"], False),
        (True, True, ["run-r-torch"], False),
        (True, True, ["history", "run-r-torch"], True),
        (True, False, ["history of before"], False),
    ],
)
def test_a_run_is_whole_with_its_files_and_what_the_server_makes_of_each_table(
    has_files: bool, media: bool, logged: list[str], whole: bool
) -> None:
    segment = Segment("s0", 1, lambda: iter([{"profiles": 1}]), numbers=not media)
    wanted = dataclasses.replace(content(1), segments=(segment,))
    wanted = dataclasses.replace(wanted, files=(("a", Path("a")),) if has_files else ())
    names = {"history": f"{wanted.artifact_type}-r", "history of before": f"{wanted.artifact_type}-r"}
    artifacts = [
        SimpleNamespace(name=f"{names.get(one, one)}:v0", metadata={"segments": ["s0"] * (one == "history")})
        for one in logged
    ]
    handle = SimpleNamespace(logged_artifacts=lambda: iter(artifacts))
    run = dataclasses.replace(there(1, digest=wanted.digest()), name="r", handle=handle)
    assert worker._is_whole(wanted, run) is whole
