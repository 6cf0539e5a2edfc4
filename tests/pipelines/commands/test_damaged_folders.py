"""What is told where a workload raises, and of a folder that is damaged: nothing is hidden or guessed."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from measured import change, compared, cost, simulated
from toys import defective
from typed import ended

from perfsweep.pipelines.commands.comparison import compare
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.records import Manifest, SweepFolder

pytestmark = pytest.mark.slow
SINGLE = DesignConfig("one_at_a_time", levels={"work": ["single"]})
TWO_REFERENCES = {"naive": {}, "single": {"work": "single"}}
NUMBER = re.compile(r"\dx (faster|slower)")
OOM = {"outcome": "oom", "failure": {"type": "OutOfMemoryError", "message": "CUDA out of memory"}}


def reported(folder: SweepFolder) -> str:
    """The Markdown answer of a sweep; the page must have come out beside it."""
    compare(str(folder.path))
    assert folder.report_file.stat().st_size > 5_000
    return folder.markdown_file.read_text()


def row(text: str, start: str) -> str:
    """The row of the tables of effects that begins with a name."""
    effects = text.partition("## Claims")[0].partition("## Arms")[0]
    (found,) = [line for line in effects.splitlines() if line.startswith(f"| {start} |")]
    return found


def timings(folder: SweepFolder, arm: str) -> list[Path]:
    return sorted(folder.path.glob(f"trials/{arm}/*-r*/record.json"))


def arm_of(manifest: Manifest, label: str) -> str:
    return next(arm.id for arm in manifest.arms if arm.label == label)


@pytest.fixture
def sweep(command) -> tuple[SweepFolder, Manifest]:
    return simulated(command(SINGLE, measure={"rounds": 8}), cost, iterations=20)


def test_a_reference_that_ran_out_of_memory_leaves_other_references_and_bases_to_serve(command) -> None:
    designs = (
        DesignConfig("arms", arms={"fast": {"work": "single", "slab": 8}}),
        DesignConfig("leave_one_out", best={"work": "single", "slab": 4}, toggles=["slab"]),
    )
    folder, manifest = simulated(
        command(*designs, references=TWO_REFERENCES, measure={"rounds": 8}), cost, iterations=20
    )
    for record in timings(folder, manifest.sweep.references["naive"]):
        change(record, **OOM)
    text = reported(folder)
    assert "baseline single: " in text
    assert "baseline naive has no finished round" in text
    lost, kept = row(text, "fast vs naive"), row(text, "fast vs single")
    assert "base oom" in lost and not NUMBER.search(lost)
    assert re.search(r"\dx (faster|slower)", kept) and ".." in kept
    assert NUMBER.search(row(text, "slab=4"))
    assert "its base baseline: CUDA out of memory" in text


def test_arms_of_different_data_are_not_compared_and_the_digests_are_named(command) -> None:
    levels = {"work": ["single"], "slab": [2]}
    folder, manifest = simulated(
        command(DesignConfig("one_at_a_time", levels=levels), measure={"rounds": 8}), cost, iterations=20
    )
    for record in timings(folder, arm_of(manifest, "work=single")):
        change(record, keys={"device": "fake", "data": "feed"}, peak_bytes=10**9)
    text = reported(folder)
    assert "other data" in row(text, "work=single") and not NUMBER.search(row(text, "work=single"))
    assert "MB" not in row(text, "work=single").replace("same", "")
    assert "data differs" in text and "feed" in text
    assert NUMBER.search(row(text, "slab=2"))
    assert compare(str(folder.path)) == 1, "nobody should take this for a success"


def test_half_written_and_foreign_files_are_named_and_skipped(sweep) -> None:
    folder, manifest = sweep
    records = timings(folder, manifest.arms[0].id)
    records[0].write_text(records[0].read_text()[:100])
    records[1].write_text("[1, 2]")
    series = timings(folder, manifest.arms[1].id)[2].with_name("iterations.npz")
    series.write_bytes(series.read_bytes()[:300])
    evidence = next(folder.path.glob(f"trials/{manifest.arms[1].id}/*evidence*/evidence.npz"))
    evidence.write_bytes(b"no zip")
    for name in ("notes.txt", "p000-r000-a0.tmp", "somebody else"):
        (folder.path / "trials" / manifest.arms[0].id / name).mkdir()
    (folder.path / "trials" / "stranger").mkdir()
    (folder.tables_dir / "effects.parquet").parent.mkdir(exist_ok=True)
    (folder.tables_dir / "effects.parquet").write_bytes(b"left by a crash")
    text = reported(folder)
    for file in (records[0], records[1], series, evidence):
        assert str(file) in text
    assert "unchecked" in row(text, "work=single")
    assert pl.read_parquet(folder.tables_dir / "effects.parquet")["rounds"].to_list() == [6]


@pytest.mark.parametrize("rounds", [2, 3])
def test_times_without_any_scatter_give_neither_nan_nor_infinite_numbers(command, rounds: int) -> None:
    folder, manifest = simulated(
        command(SINGLE, measure={"rounds": rounds}), cost, drift=0.0, noise=0.0, iterations=20
    )
    text = reported(folder)
    (effect,) = compared(folder, manifest).effects
    assert effect.ratio == pytest.approx(0.5)
    assert "nan" not in text and "inf" not in row(text, "work=single")


def test_a_sweep_of_which_nothing_is_measured_says_so(command) -> None:
    folder, _ = simulated(command(SINGLE, measure={"rounds": 2}), cost)
    for record in folder.path.glob("trials/*/*/record.json"):
        record.unlink()
    text = reported(folder)
    assert "No baseline has a finished round yet" in text
    assert "no rounds yet" in row(text, "work=single") and not NUMBER.search(row(text, "work=single"))


SWEEP = (
    *("sweep", "toys.defective:Raises", "sweep=ablation", "measure.rounds=3", "measure.servers=1"),
    *("measure.iterations=4", "measure.repeats=0", "tracking=disabled", "cluster.executor=inprocess"),
)
LINES = Path(defective.__file__).read_text().splitlines()
PLACE = f"defective.py:{next(n for n, line in enumerate(LINES, 1) if 'told to break' in line)},"


def test_what_the_users_code_raised_is_on_the_terminal_and_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*SWEEP, f"runs={tmp_path}") == 1
    said = capsys.readouterr().out
    message = "baseline: failed: ValueError: the toy was told to break: [batch, dim] is no shape [/batch]"
    assert message in " ".join(said.split())
    assert PLACE in "".join(said.split())
    log = next(tmp_path.glob("*/trials/*/*/log.txt")).read_text()
    assert "Traceback (most recent call last)" in log
    assert "ValueError: the toy was told to break" in log
