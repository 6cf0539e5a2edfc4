"""What docs/reading.md and docs/tables.md say is true: examples run on a sweep, and the files are there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import polars as pl
from measured import compared, cost, simulated

from perfsweep.pipelines.config.types import DesignConfig

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tables.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", (DOCS / "reading.md").read_text() + PAGE, flags=re.DOTALL)


def test_the_examples_answer_their_questions(command, monkeypatch, tmp_path) -> None:
    sweep = command(
        DesignConfig("one_at_a_time", levels={"work": ["single"], "slab": [2]}), measure={"rounds": 10}
    )
    folder, manifest = simulated(sweep, cost, iterations=20)
    compared(folder, manifest)
    (tmp_path / "runs" / "digits-demo").symlink_to(folder.path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pl.Config(tbl_cols=-1, tbl_width_chars=200):
        for example in EXAMPLES:
            exec(example, names)
    assert len(EXAMPLES) == 3
    assert re.search(r"baseline.*10", printed.getvalue())
    assert re.search(r"work.*single.*0\.[45]", printed.getvalue())


def test_every_table_that_the_page_names_is_written(command) -> None:
    folder, manifest = simulated(
        command(DesignConfig("one_at_a_time", levels={"work": ["single"]})), cost, iterations=20
    )
    compared(folder, manifest)
    named = set(re.findall(r"`(\w+\.parquet)`", PAGE))
    assert named == {file.name for file in folder.tables_dir.glob("*.parquet")}
