"""The answer as text: every effect a row, bad oracle figures bold, and the way back to the sweep."""

from __future__ import annotations

import math
from dataclasses import replace

from perfsweep.pipelines.analysis.arm_results import OracleDeviation, Quality
from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.report.markdown import write_markdown
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import Effect, SweepFolder

EFFECT = Effect(id="e", design="one_at_a_time", toggle="amp", level="bf16|x", pairs=(("a", "b"),))
RESULT = EffectResult(EFFECT, "a", "b", Verdict.FASTER, ratio=0.25, low=0.2, high=0.3, rounds=6)
QUALITY = (
    Quality("naive", (OracleDeviation("excess", 2e-5, 1e-5),)),
    Quality("amp", (OracleDeviation("excess", math.nan, 1e-5),)),
)


def written(folder, **more) -> str:
    comparison = Comparison(
        "demo", "pair", 0.01, Reference("naive", 1500.0, 6), (RESULT,), (), ("a note",), **more
    )
    features = {"cpu_features": ["avx2", "amx_bf16"]}
    environment = {"cpu_model": "Fast One", "cores": 2, "gpus": [], "load": [1.0], **features}
    found = read_provenance(
        folder.config_file, [environment, {**environment, "load": [2.0], "torch_threads": 2}]
    )
    write_markdown(folder, comparison, found)
    return folder.markdown_file.read_text()


def test_an_effect_is_a_row_whose_cells_cannot_break_the_table(tmp_path):
    text = written(SweepFolder(tmp_path))
    assert "| amp=bf16\\|x | 4.00x faster | 3.33 .. 5.00 | faster |  |  | b | 6 |" in text
    assert "- a note" in text


def test_a_group_of_effects_is_a_row_in_bold_and_what_follows_stands_below_with_commands_as_code(tmp_path):
    won = replace(RESULT, effect=EFFECT.model_copy(update={"level": "bf16"}), arm_label="amp=bf16")
    text = written(SweepFolder(tmp_path), winners=(won,), workload="toy", noise=("a noisy machine",))
    lines = text.splitlines()
    row = next(place for place, line in enumerate(lines) if line.startswith("| amp=bf16"))
    assert lines[row - 1].startswith("| **RESULTS NOT CHECKED** |")
    assert lines[row - 1].count("|") == lines[row].replace("\\|", "").count("|"), (
        "as many cells as the others"
    )
    assert "- **!** a noisy machine" in lines
    assert "- **Use it:** `perfsweep run workload=toy toggles.amp=bf16`" in lines
    assert lines.index("- **!** a noisy machine") < row < lines.index("## Answer") < lines.index("## Notes")


def test_without_anything_to_conclude_there_is_no_heading_for_it(tmp_path):
    assert "## Answer" not in written(SweepFolder(tmp_path))


def test_oracle_figures_beyond_their_bound_or_unknown_are_bold(tmp_path):
    text = written(SweepFolder(tmp_path), quality=QUALITY)
    assert "| naive | **2e-05** |" in text
    assert "| amp | **nan** |" in text


def test_command_commit_versions_and_machine_stand_below(tmp_path):
    (tmp_path / "sweep.yaml").write_text(
        "provenance: {command: perfsweep sweep x=1, python: '3.11', versions: {torch: '2.13'}, git_commit:"
        " abc, git_diff: '+x'}\n"
    )
    text = written(SweepFolder(tmp_path))
    assert "`perfsweep sweep x=1`" in text
    assert "abc with uncommitted changes" in text
    assert "Python 3.11, torch 2.13" in text
    assert "Fast One (avx2, amx_bf16), 2 cores; GPU: none" in text
    assert "not the same in all trials: torch_threads: None; 2" in text
    assert "load" not in text
