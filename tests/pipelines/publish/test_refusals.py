"""What W&B's client was refused, by what it has written into its log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsweep.pipelines.publish.server import refusal_in, status_sentence


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refused the API key (401); log in again with `wandb login`"),
        (403, "permitted no access (403); check tracking.entity and tracking.project"),
        (409, "knows the run otherwise (409)"),
        (413, "refused a request as too large (413); raise the limit of the server"),
        (429, "limits the rate of requests (429); publish again later, or with tracking.uploads=1"),
        (500, "answered with status 500; try again later"),
    ],
)
def test_a_status_is_a_sentence_with_its_remedy(status: int, words: str) -> None:
    assert status_sentence(status).startswith(words)


def log(folder: Path, name: str, seconds: float, *lines: str) -> None:
    file = folder / name / "logs/debug-internal.log"
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(lines) + "\n")
    os.utime(file, (seconds, seconds))


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ('{"level":"ERROR","msg":"upload","status":403}', 403),
        ('{"level":"INFO","msg":"retrying HTTP error","error":"HTTP 429"}', 429),
        ('{"level":"INFO","msg":"fine","status":200}', None),
        ('{"level":"ERROR","msg":"no status"}', None),
    ],
)
def test_a_line_tells_of_a_refusal_or_of_none(tmp_path: Path, line: str, status: int | None) -> None:
    log(tmp_path, "run", 1.0, line)
    assert refusal_in(tmp_path) == (None if status is None else f"W&B {status_sentence(status)}")


def test_the_last_refusal_of_the_latest_log_counts(tmp_path: Path) -> None:
    log(tmp_path, "a", 9.0, '{"level":"ERROR","status":403}', '{"level":"ERROR","status":413}')
    log(tmp_path, "b", 1.0, '{"level":"ERROR","status":409}')
    assert "(413)" in (refusal_in(tmp_path) or "")


def test_where_nothing_was_logged_there_is_none(tmp_path: Path) -> None:
    assert refusal_in(tmp_path) is None
