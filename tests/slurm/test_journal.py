"""What stands in a journal: who is alive, how often each job was tried, and which nodes failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsweep.checksums import FIELD, sealed, unsealed
from perfsweep.slurm.journal import Journal, Verdict
from perfsweep.slurm.retry import Action
from perfsweep.slurm.states import End

DONE = Verdict(End.DONE, Action.NONE, "")
LOST = Verdict(End.PREEMPTED, Action.RETRY, "lost")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "sweep/submissions.jsonl")


def test_an_array_is_open_until_it_is_refused_or_each_element_has_ended(journal: Journal) -> None:
    first = journal.submitting(["p000", "p001"], None)
    assert (first.open, first.array) == ([0, 1], None)
    journal.ended(first, 0, DONE)
    assert (first.open, journal.open_names()) == ([1], {"p001"})
    journal.ended(first, 1, DONE)
    assert (first.open, journal.open_submissions()) == ([], [])
    second = journal.submitting(["p002"], None)
    journal.refused(second.token, "no")
    assert (second.open, second.refused, journal.open_submissions()) == ([], "no", [])


def test_what_is_submitted_is_kept_with_its_place_and_its_limits(journal: Journal) -> None:
    limits = {"timeout": 30}
    first = journal.submitting(["p000"], "/etc/slurm.conf", "dev", limits)
    journal.submitted(first.token, "62")
    again = Journal(journal.file).submissions[first.token]
    assert (again.conf, again.cluster, again.array, again.names) == (
        "/etc/slurm.conf",
        "dev",
        "62",
        ("p000",),
    )
    assert Journal(journal.file).limits == {"p000": limits}
    journal.submitting(["p000"], None)
    assert journal.limits == {"p000": {}}


def test_a_job_that_is_submitted_again_has_no_verdict_any_more(journal: Journal) -> None:
    journal.ended(journal.submitting(["p000"], None), 0, LOST)
    assert journal.verdicts == {"p000": LOST}
    journal.submitting(["p000"], None)
    assert journal.verdicts == {}


@pytest.mark.parametrize(
    ("end", "action", "tries"),
    [
        (End.PREEMPTED, Action.RETRY, 1),
        (End.PREEMPTED, Action.FINAL, 0),
        (End.OOM, Action.FINAL, 1),
        (End.TIMEOUT, Action.FINAL, 1),
        (End.FAILED, Action.FINAL, 0),
    ],
)
def test_tries_count_what_was_tried_again_and_what_a_person_can_remedy(
    journal: Journal, end: End, action: Action, tries: int
) -> None:
    journal.ended(journal.submitting(["p000"], None), 0, Verdict(end, action, ""))
    assert journal.tries["p000"][end] == tries


def test_what_is_given_up_is_no_further_try(journal: Journal) -> None:
    journal.given_up("p000", Verdict(End.OOM, Action.FINAL, "too often"))
    assert journal.tries["p000"][End.OOM] == 0
    assert journal.verdicts["p000"].note == "too often"


@pytest.mark.parametrize(
    ("line", "nodes"),
    [
        ({"end": "node failed", "failed_nodes": ["n1", "n2"]}, {"n1", "n2"}),
        ({"end": "node failed", "failed_nodes": []}, set()),
        ({"end": "node failed", "node": "n1"}, {"n1"}),
        ({"end": "preempted", "node": "n1"}, set()),
        ({"end": "node failed"}, set()),
    ],
    ids=["named", "none", "of an earlier version", "did not fail", "unknown"],
)
def test_nodes_that_failed_are_those_that_a_line_names(
    journal: Journal, line: dict[str, object], nodes: set[str]
) -> None:
    own = {"event": "ended", "name": "p000", "action": "retry", "note": "", **line}
    journal.file.parent.mkdir()
    journal.file.write_text(json.dumps(sealed(own)) + "\n")
    assert Journal(journal.file).bad_nodes == nodes


def test_a_line_goes_behind_half_a_line_of_a_command_that_was_killed(journal: Journal) -> None:
    first = journal.submitting(["p000"], None)
    with journal.file.open("a") as file:
        file.write('{"event": "submitt')
    journal.submitted(first.token, "62")
    assert Journal(journal.file).submissions[first.token].array == "62"
    assert len(journal.file.read_text().splitlines()) == 3
    journal.submitting(["p001"], None)
    assert len(journal.file.read_text().splitlines()) == 4


def test_lines_are_applied_once_and_half_a_line_when_it_is_whole(journal: Journal) -> None:
    first = journal.submitting(["p000"], None)
    whole = json.dumps(sealed({"event": "submitted", "token": first.token, "array": "62"}))
    with journal.file.open("a") as file:
        file.write(whole[:20])
        file.flush()
        journal.refresh()
        assert first.array is None
        file.write(whole[20:] + "\n")
    journal.ended(first, 0, LOST)
    journal.refresh()
    assert (first.array, journal.tries["p000"][End.PREEMPTED]) == ("62", 1)


def test_an_object_whose_content_was_changed_is_told_by_its_checksum() -> None:
    whole = sealed({"b": 2, "a": 1})
    assert unsealed(whole) == {"b": 2, "a": 1}
    assert whole[FIELD] == sealed({"a": 1, "b": 2})[FIELD], "in whatever order"
    with pytest.raises(ValueError, match="it states no checksum"):
        unsealed({"a": 1})
    with pytest.raises(ValueError, match="does not have the checksum that it states"):
        unsealed({**whole, "a": 3})


def test_a_line_that_another_command_is_still_writing_is_read_once_it_is_whole(tmp_path: Path) -> None:
    other = Journal(tmp_path / "other")
    other.submitted(other.submitting(["p000"], None).token, "62")
    first, second = other.file.read_bytes().splitlines(keepends=True)
    journal = Journal(tmp_path / "journal")
    for piece, arrays in (
        (first[:30], []),
        (first[30:-1], []),
        (b"\n", [None]),
        (second[:-1], [None]),
        (second[-1:], ["62"]),
    ):
        with journal.file.open("ab") as file:
            file.write(piece)
        journal.refresh()
        assert [submission.array for submission in journal.submissions.values()] == arrays
