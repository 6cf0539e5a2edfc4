"""What is said of what was published: the command that comes next can be copied into a shell."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from perfsweep.pipelines.publish.published import (
    Published,
    PublishedRun,
    published_line,
    table_of_runs,
    warning,
)
from perfsweep.pipelines.store.records import SweepFolder

FOLDER = SweepFolder(Path("my runs/it's"))


def run(found: int = 5, note: str = "written", where: str | None = "there", **more: Any) -> PublishedRun:
    return PublishedRun("a", "baseline", "p000", "x-a-p000", where, 5, found, note, **more)


WHOLE, SHORT, KNOWN = run(), run(3, "server busy"), run(note="already complete")


@pytest.mark.parametrize(
    ("runs", "problems", "words"),
    [
        ([WHOLE], [], None),
        ([WHOLE, SHORT], [], "1 of 2 runs lack 2 rows, {mend}: server busy"),
        ([SHORT], ["damaged", "lost"], "1 of 1 runs lack 2 rows, {mend}: damaged (and 2 more)"),
        ([run(5, "lost", None)], [], "1 of 1 runs lack 0 rows, {mend}: lost"),
    ],
)
def test_what_is_missing_is_one_sentence(
    runs: list[PublishedRun], problems: list[str], words: str | None
) -> None:
    mend = "the records are untouched, fix this and publish again"
    assert warning(runs, problems) == (words and words.format(mend=mend))


@pytest.mark.parametrize(
    ("done", "line"),
    [
        (Published(mode="disabled"), "nothing of my runs/it's is published, because tracking.mode=disabled"),
        (
            Published(warning="some"),
            "0 runs, 0 of them new or changed, 0 of 0 rows in my runs/it's/wandb; some",
        ),
        (
            Published((WHOLE, KNOWN)),
            "2 runs, 1 of them new or changed, 10 of 10 rows in my runs/it's/wandb; upload them with"
            ' `perfsweep publish "my runs/it\'s"`',
        ),
        (
            Published((WHOLE, SHORT), "some", "online"),
            "2 runs, 2 of them new or changed, 8 of 10 rows on the server; some",
        ),
    ],
)
def test_what_was_published_where_is_one_sentence(done: Published, line: str) -> None:
    assert published_line(done, FOLDER) == f"W&B: {line}"


def test_the_table_tells_rows_before_and_now_and_what_is_incomplete() -> None:
    done = Published((WHOLE, run(3, "server busy", rows_before=1)))
    console = Console(width=100, file=io.StringIO())
    console.print(table_of_runs(done, "Runs"))
    _, headings, _, first, second = [
        line.split() for line in console.file.getvalue().splitlines() if line.strip()
    ]  # type: ignore[attr-defined]
    assert headings == ["run", "pack", "rows", "before", "now", "state"]
    assert first == ["baseline", "p000", "5", "5", "written"]
    assert second == ["baseline", "p000", "5", "1", "3", "incomplete:", "server", "busy"]
