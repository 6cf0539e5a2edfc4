"""What is checked after a storm notices what may never be: each rule is shown a sweep with one mistake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from storm import invariants

ARMS, PACK, ROUNDS = ("aaaa", "bbbb"), "p000", 3

Spoil = Callable[[Path], None]


def record(folder: Path, arm: str, number: int | None, attempt: int = 0, **changes: object) -> Path:
    """Write a trial as perfsweep does: a timing trial of a round, or the one of a kind."""
    kind = str(changes.get("kind", "timing"))
    stage = f"r{number:03d}" if number is not None else kind
    place = folder / "trials" / arm / f"{PACK}-{stage}-a{attempt}"
    place.mkdir(parents=True, exist_ok=True)
    walls = np.full(4, 1000 + (number or 0), np.int64)
    values = {"arm": arm, "kind": kind, "pack": PACK, "round": number, "attempt": attempt, "outcome": "ok"}
    values |= {"units": 8.0, "iterations": 4, "region_ns": int(walls.sum()), "failure": None, **changes}
    (place / "record.json").write_text(json.dumps(values))
    np.savez(place / "iterations.npz", wall_ns=walls, warmup_wall_ns=walls[:1])
    return place


def collected(folder: Path) -> None:
    """Write the table of trials as a right `collect` would."""
    rows = []
    for one in invariants.trials(folder):
        values = one.values
        rows.append(
            {
                **{name: values[name] for name in ("arm", "kind", "pack", "round", "attempt", "outcome")},
                "used": values["kind"] == "timing" and values["attempt"] == 0,
                "ns_per_unit": values["region_ns"] / values["units"],
            }
        )
    (folder / "tables").mkdir(exist_ok=True)
    pl.DataFrame(rows).write_parquet(folder / "tables" / "trials.parquet")


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A finished sweep of two arms and three rounds."""
    folder = tmp_path / "sweep"
    folder.mkdir()
    rows: list[dict[str, object]] = [{"row": "sweep", "name": "demo"}]
    rows += [{"row": "pack", "id": PACK, "orders": [ARMS] * ROUNDS, "start": "fork"}]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for arm in ARMS:
        for number in range(ROUNDS):
            record(folder, arm, number)
        for kind in ("counting", "evidence"):
            record(folder, arm, None, kind=kind)
    collected(folder)
    return folder


def kinds(folder: Path) -> set[str]:
    return {one.kind for one in invariants.violations(folder)}


def test_a_sweep_with_every_trial_once_has_nothing_against_it(sweep: Path) -> None:
    assert list(invariants.violations(sweep)) == []
    assert str(invariants.tally(sweep)) == "6 of 6"


def lose(sweep: Path) -> None:
    (sweep / f"trials/bbbb/{PACK}-r001-a0/record.json").unlink()
    collected(sweep)


def tear(sweep: Path) -> None:
    file = sweep / f"trials/bbbb/{PACK}-r001-a0/record.json"
    os.truncate(file, 20)
    collected(sweep)


def fail(sweep: Path) -> None:
    record(sweep, "bbbb", 1, outcome="failed")
    collected(sweep)


def piece_together(sweep: Path) -> None:
    """A round of which one arm was measured by the first attempt, the other by the second."""
    lose(sweep)
    record(sweep, "bbbb", 1, attempt=1)
    collected(sweep)


def lose_evidence(sweep: Path) -> None:
    shutil.rmtree(sweep / f"trials/bbbb/{PACK}-evidence-a0")
    collected(sweep)


def tear_series(sweep: Path) -> None:
    os.truncate(sweep / f"trials/aaaa/{PACK}-r002-a0/iterations.npz", 100)


def leave_out(sweep: Path) -> None:
    """The table lacks a trial that is there."""
    file = sweep / "tables" / "trials.parquet"
    table = pl.read_parquet(file)
    table.filter(~((pl.col("round") == 2) & (pl.col("arm") == "aaaa"))).write_parquet(file)


def lose_table(sweep: Path) -> None:
    (sweep / "tables" / "trials.parquet").unlink()


@pytest.mark.parametrize(
    "spoil", [lose, tear, fail, piece_together, lose_evidence, tear_series, leave_out, lose_table]
)
def test_a_trial_that_is_lost_is_noticed(sweep: Path, spoil: Spoil) -> None:
    spoil(sweep)
    assert "lost" in kinds(sweep)


def count_twice(sweep: Path) -> None:
    file = sweep / "tables" / "trials.parquet"
    table = pl.read_parquet(file)
    pl.concat([table, table.filter((pl.col("round") == 0) & (pl.col("arm") == "aaaa"))]).write_parquet(file)


def count_both_attempts(sweep: Path) -> None:
    for arm in ARMS:
        record(sweep, arm, 1, attempt=1)
    collected(sweep)
    file = sweep / "tables" / "trials.parquet"
    pl.read_parquet(file).with_columns(used=pl.col("kind") == "timing").write_parquet(file)


@pytest.mark.parametrize("spoil", [count_twice, count_both_attempts])
def test_a_trial_that_counts_twice_is_noticed(sweep: Path, spoil: Spoil) -> None:
    spoil(sweep)
    assert "doubled" in kinds(sweep)


def test_a_round_of_two_attempts_is_noticed(sweep: Path) -> None:
    record(sweep, "bbbb", 1, attempt=1)
    collected(sweep)
    file = sweep / "tables" / "trials.parquet"
    other = (pl.col("round") == 1) & (pl.col("arm") == "bbbb") & (pl.col("kind") == "timing")
    used = pl.when(other).then(pl.col("attempt") == 1).otherwise(pl.col("used"))
    pl.read_parquet(file).with_columns(used=used).write_parquet(file)
    assert "mixed" in kinds(sweep)


def another_figure(sweep: Path) -> None:
    file = sweep / "tables" / "trials.parquet"
    pl.read_parquet(file).with_columns(ns_per_unit=pl.col("ns_per_unit") * 1.0001).write_parquet(file)


def another_length(sweep: Path) -> None:
    walls = np.full(3, 1000, np.int64)
    np.savez(sweep / f"trials/aaaa/{PACK}-r002-a0/iterations.npz", wall_ns=walls, warmup_wall_ns=walls)


def longer_than_its_region(sweep: Path) -> None:
    walls = np.full(4, 5000, np.int64)
    np.savez(sweep / f"trials/aaaa/{PACK}-r002-a0/iterations.npz", wall_ns=walls, warmup_wall_ns=walls)


@pytest.mark.parametrize("spoil", [another_figure, another_length, longer_than_its_region])
def test_a_figure_that_is_not_the_recorded_one_is_noticed(sweep: Path, spoil: Spoil) -> None:
    spoil(sweep)
    assert kinds(sweep) == {"wrong"}


def test_a_record_in_another_trials_folder_is_noticed(sweep: Path) -> None:
    ours = sweep / f"trials/aaaa/{PACK}-r000-a0/record.json"
    ours.write_text((sweep / f"trials/aaaa/{PACK}-r001-a0/record.json").read_text())
    assert "misplaced" in kinds(sweep)


def test_an_arm_that_was_given_up_is_wanted_no_more(sweep: Path) -> None:
    for number in range(ROUNDS):
        shutil.rmtree(sweep / f"trials/bbbb/{PACK}-r{number:03d}-a0")
    for number in range(2):
        record(sweep, "bbbb", number, outcome="failed")
    collected(sweep)
    assert kinds(sweep) == set()
    assert str(invariants.tally(sweep)) == "3 of 3, and 2 failed"


def sent(folder: Path) -> list[tuple[str, list[str]]]:
    """The runs of a right publication, as W&B keeps them."""
    runs = []
    for arm in ARMS:
        lines = []
        for number in range(ROUNDS):
            walls = [(1000 + number) / 1e6] * 4
            lines += [_row("warmup", number, 0, walls[0])]
            lines += [_row("iter", number, place, wall) for place, wall in enumerate(walls)]
        runs.append((json.dumps({"arm": {"value": arm}, "pack": {"value": PACK}}), lines))
    return runs


def _row(kind: str, number: int, place: int, milliseconds: float) -> str:
    return json.dumps({f"{kind}/ms": milliseconds, f"{kind}/round": number, f"{kind}/in_round": place})


def test_rows_that_are_all_in_wandb_once_have_nothing_against_them(sweep: Path) -> None:
    assert list(invariants.violations(sweep, sent(sweep))) == []


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("lost", lambda runs: runs[0][1].pop()),
        ("lost", lambda runs: runs.pop()),
        ("doubled", lambda runs: runs[1][1].append(runs[1][1][0])),
        ("doubled", lambda runs: runs.append(runs[0])),
        ("wrong", lambda runs: runs[0][1].append(_row("iter", 7, 0, 1.0))),
        ("wrong", lambda runs: runs[0][1].__setitem__(3, _row("iter", 0, 2, 2.0))),
    ],
    ids=["a row", "a run", "a row twice", "a run twice", "a round that nobody counts", "another value"],
)
def test_rows_that_are_not_those_recorded_are_noticed(
    sweep: Path, kind: str, change: Callable[[list[tuple[str, list[str]]]], object]
) -> None:
    runs = sent(sweep)
    change(runs)
    assert {one.kind for one in invariants.violations(sweep, runs)} == {kind}


@pytest.mark.parametrize(
    "name",
    [
        "trials/aaaa/p000-r000-a0/.record.json.17.0badc0de.tmp",
        "submissions/12_submitted.pkl.save_tmp",
        "wandb/.publishing-x1/alive",
        "code/.0123456789ab.4711/conf/a.yaml",
        "trials/aaaa/p000-r000-a0/scratch/rank0/x",
    ],
)
def test_what_a_killed_writer_leaves_is_noticed(sweep: Path, name: str) -> None:
    assert list(invariants.leftovers(sweep)) == []
    (sweep / name).parent.mkdir(parents=True, exist_ok=True)
    (sweep / name).touch()
    assert {one.kind for one in invariants.leftovers(sweep)} == {"temporary"}


def test_a_secret_is_noticed_wherever_it_stands_but_in_its_own_file(sweep: Path) -> None:
    own = sweep / "login"
    own.write_text("s3cr3t-value")
    assert list(invariants.secrets(["s3cr3t-value"], sweep, allowed=(own,))) == []
    (sweep / "trials" / "log.bin").write_bytes(b"\0\1key=s3cr3t-value\0")
    (found,) = invariants.secrets(["s3cr3t-value"], sweep, allowed=(own,))
    assert found.kind == "secret" and "log.bin" in found.text and "s3cr3t" not in found.text


def test_a_process_is_noticed_by_its_mark_and_by_the_folder_that_it_works_in(tmp_path: Path) -> None:
    code, pipe = "import sys; print(flush=True); sys.stdin.read()", subprocess.PIPE
    marked, named = (
        subprocess.Popen([sys.executable, "-S", "-c", code, *words], stdin=pipe, stdout=pipe, env=env)
        for words, env in (((), {"X": "storm-0badc0de"}), ((f"{tmp_path}/trials",), {}))
    )
    for process in (marked, named):
        assert process.stdout and process.stdout.readline(), "its command line can be read from now on"
    try:
        assert set(invariants.processes("storm-0badc0de", tmp_path)) == {marked.pid, named.pid}
    finally:
        for process in (marked, named):
            process.communicate()
    assert invariants.processes("storm-0badc0de", tmp_path) == {}


@pytest.mark.parametrize(
    "text",
    [
        "fine\nTraceback (most recent call last):\n  File x\nKeyError: 'a'\n",
        "Exception ignored in: <function f>\n",
        "perfsweep.pipelines.store.RecordError: it is damaged\n",
        "OSError: [Errno 28] No space left on device\n",
    ],
)
def test_words_of_an_interpreter_are_noticed(text: str) -> None:
    assert [one.kind for one in invariants.words(text, "a log")] == ["words"]


def test_a_traceback_in_a_trials_log_is_noticed_unless_it_is_of_the_users_module() -> None:
    ours = 'Traceback (most recent call last):\n  File "/x/pipelines/trial/process.py", line 1\nKeyError: 3\n'
    theirs = ours.replace("KeyError", "ValueError").replace(
        "line 1\n", 'line 1\n  File "/x/toys/spinner.py"\n'
    )
    assert list(invariants.trial_words(theirs, "toys", "a log")) == []
    assert [one.kind for one in invariants.trial_words(theirs + ours, "toys", "a log")] == ["words"]


def test_what_a_full_disk_ends_is_told_by_the_pack_and_its_log_may_be_cut_off_there() -> None:
    frame = 'Traceback (most recent call last):\n  File "/x/pipelines/trial/process.py", line 1\n'
    full = f"{frame}OSError: [Errno 28] No space left on device\n"
    chain = f"\nDuring handling of the above exception, another exception occurred:\n\n{frame}"
    assert list(invariants.trial_words(full, "toys", "a log")) == []
    assert list(invariants.trial_words(f"{full}{chain}    raise OSErr", "toys", "a log")) == []
    assert list(invariants.trial_words(f"{full}\n{frame}KeyError: 3\n", "toys", "a log"))
    assert list(invariants.trial_words(f"{frame}KeyError: 3\n{chain}ValueError: 4\n", "toys", "a log"))


def test_a_sentence_with_an_exception_in_it_is_none() -> None:
    text = (
        "pack p000 broke off: it ended with status 3\nwork=single: failed: ValueError: the toy was told to\n"
    )
    assert list(invariants.words(text, "a log")) == []


@pytest.mark.parametrize(("status", "errors"), [(2, ""), (2, "one\ntwo\n"), (-6, ""), (139, "")])
def test_a_complaint_that_is_not_one_sentence_is_noticed(status: int, errors: str) -> None:
    assert [one.kind for one in invariants.complaint(status, errors, "it")] == ["words"]


@pytest.mark.parametrize(("status", "errors"), [(0, ""), (2, "perfsweep sweep: no such arm\n"), (130, "\n")])
def test_a_complaint_of_one_sentence_is_none(status: int, errors: str) -> None:
    assert list(invariants.complaint(status, errors, "it")) == []


@pytest.mark.parametrize(
    ("head", "frame", "found"),
    [
        ("", 'File "<frozen runpy>", line 189, in _run_module_as_main', 0),
        ("", 'File "/x/perfsweep/__init__.py", line 21, in <module>', 0),
        ("Fatal Python error: init_import_site: it failed\n", 'File "<frozen site>", line 599, in main', 0),
        ("", 'File "/x/perfsweep/__main__.py", line 20, in main', 1),
        ("pack p000 broke off\n", 'File "<frozen runpy>", line 189, in _run_module_as_main', 1),
    ],
    ids=["the interpreter", "its imports", "its site", "the command", "later"],
)
def test_only_a_command_that_runs_must_say_that_it_was_interrupted(head: str, frame: str, found: int) -> None:
    text = f"{head}Traceback (most recent call last):\n  {frame}\nKeyboardInterrupt\n"
    assert len(list(invariants.words(text, "here"))) == found


@pytest.mark.parametrize(
    ("name", "inside", "on_slurm", "left"),
    [
        ("wandb-1-2-3", "socket", True, False),
        ("wandb-1-2-3", "socket", False, True),
        ("wandb-1-2-3", "run.wandb", True, True),
        ("wandb-1-2", "socket", True, True),
        ("torchinductor_root", "code.py", False, False),
        ("perfsweep-code-0", "code.py", False, False),
        ("tmp8x", "a", True, True),
    ],
)
def test_only_caches_may_be_left_and_a_socket_of_wandb_where_slurm_kills_whole_steps(
    tmp_path: Path, name: str, inside: str, on_slurm: bool, left: bool
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / inside).touch()
    assert bool([*invariants.unempty(tmp_path, on_slurm)]) is left
