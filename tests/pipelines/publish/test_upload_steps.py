"""What an upload does step by step, of whatever the server says that it has."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.publish import upload
from perfsweep.pipelines.publish.content import RunContent, Segment, generation_of
from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.upload import Decision, OnServer, Step, decide
from perfsweep.pipelines.store.records import SweepFolder


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
        monkeypatch.setattr(upload, "write_run", write_run)
        monkeypatch.setattr(upload, "SETTLE_S", 0.0)
        monkeypatch.setattr(upload, "refusal_in", lambda path: log or None)
        return upload.upload(folder, WANTED, server, tmp_path), sent  # type: ignore[arg-type]

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
    ("lines", "indices", "lacking"), [(3, [0, 1, 2], None), (2, [0, 1], "rows"), (3, [0, 1, 1], "indices")]
)
def test_lost_and_doubled_rows_show_by_their_indices(
    lines: int, indices: list[int], lacking: str | None
) -> None:
    rows = [{"iter/index": number} for number in range(3)]
    wanted = dataclasses.replace(content(3), segments=(Segment("s0", 3, lambda: iter([*rows])),))
    history = [{"iter/index": index} for index in indices]
    handle = SimpleNamespace(scan_history=lambda keys, use_cache: iter(history))
    run = dataclasses.replace(there(lines, digest=wanted.digest()), handle=handle)
    assert upload._lacking(wanted, run) == lacking
