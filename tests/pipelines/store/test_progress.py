"""What a resumed sweep finds: only records of its own code count."""

from __future__ import annotations

from pathlib import Path

from recorded import build

from pipelines.store.progress import read_progress


def test_records_of_other_code_are_named_and_measured_anew(tmp_path: Path) -> None:
    sweep = build(tmp_path / "demo")
    (pack,) = sweep.manifest.packs
    before = read_progress(sweep.folder, sweep.manifest)
    assert before.timing and 0 not in before.unfinished_rounds(pack)
    newer = sweep.manifest.sweep.model_copy(update={"code": "changed"})
    progress = read_progress(sweep.folder, sweep.manifest.model_copy(update={"sweep": newer}))
    assert set(progress.left_out) == {"other code"}
    assert progress.unfinished_rounds(pack)[0] == 0
    assert not progress.timing
