"""The answer as Markdown: the report, and the comment on a pull request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.report.markdown import MARK, comment, write_markdown
from perfsweep.pipelines.report.version_answer import Answer, Side
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import Effect, SweepFolder

EFFECT = Effect(id="e", design="one_at_a_time", toggle="amp", level="bf16|x", pairs=(("a", "b"),))
RESULT = EffectResult(EFFECT, "a", "b", Verdict.FASTER, ratio=0.25, low=0.2, high=0.3, rounds=6)


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


def test_a_group_of_effects_is_a_row_in_bold_and_what_follows_stands_below_with_commands_as_code(tmp_path):
    won = replace(RESULT, effect=EFFECT.model_copy(update={"level": "bf16"}), arm_label="amp=bf16")
    text = written(
        SweepFolder(tmp_path), fastest=won, winners=(won,), workload="toy", noise=("a noisy machine",)
    )
    lines = text.splitlines()
    row = next(place for place, line in enumerate(lines) if line.startswith("| amp=bf16"))
    assert lines[row - 1].startswith("| **RESULTS NOT CHECKED** |")
    assert lines[row - 1].count("|") == lines[row].replace("\\|", "").count("|"), (
        "as many cells as the others"
    )
    assert "- **!** a noisy machine" in lines
    assert "- **Use it:** `perfsweep run workload=toy toggles.amp=bf16`" in lines
    assert lines.index("- **!** a noisy machine") < row < lines.index("## Answer") < lines.index("## Notes")


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
    assert "not the same in all trials: torch_threads: not set; 2" in text
    assert "load" not in text


BASE, HEAD = Side("HEAD^1", "0123456789abcdef"), Side("HEAD", "fedcba9876543210")
SLOWER = Answer(
    BASE,
    HEAD,
    "slower",
    "identical",
    1,
    0.025,
    workload="train",
    ratio=1.052,
    low=1.041,
    high=1.063,
    rounds=24,
    seconds=93.0,
)
CHANGED = replace(
    SLOWER, verdict="different results", results="different", deviation="loss: 0.001, allowed 1e-06"
)
LEFT = replace(
    SLOWER,
    verdict="undecided",
    reason="about 120 rounds (6 min of trials) would decide, if the estimate stayed",
    seconds_needed=372.0,
)


def written_comment(*answers: Answer) -> list[str]:
    return comment([one.as_json() for one in answers]).splitlines()


def cells(lines: list[str]) -> list[list[str]]:
    rows = [line for line in lines if line.startswith("| `")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_a_comment_can_be_found_again_says_the_worst_first_and_has_a_row_for_each_workload() -> None:
    lines = written_comment(replace(SLOWER, workload="eval", verdict="faster", ratio=0.9), SLOWER)
    assert lines[0] == MARK
    assert lines[2] == "### perfsweep: slower"
    assert lines[4] == "`HEAD` (fedcba9876) against `HEAD^1` (0123456789), measured in turn on one machine."
    faster, slower = cells(lines)
    assert faster[:3] == ["`eval`", "faster", "1.11x faster"]
    assert slower[:4] == ["`train`", "**slower**", "1.052x slower", "1.041 .. 1.063"]
    assert slower[4:] == ["identical", "24 rounds in 93 s"]


@pytest.mark.parametrize(
    ("answer", "why", "verdict", "results"),
    [
        (CHANGED, "loss: 0.001, allowed 1e-06", "different results", "**different**"),
        (
            replace(SLOWER, verdict="fewer units", reason="it ended early"),
            "it ended early",
            "fewer units",
            "identical",
        ),
    ],
)
def test_the_time_of_what_changed_results_or_does_less_work_is_not_shown(
    answer: Answer, why: str, verdict: str, results: str
) -> None:
    lines = written_comment(answer)
    assert f"- `train`: {why}. Its time does not count." in lines
    assert cells(lines)[0][1:5] == [f"**{verdict}**", "", "", results]


def test_what_is_undecided_says_how_long_it_would_take() -> None:
    (line,) = (line for line in written_comment(SLOWER, LEFT) if "would decide" in line)
    assert line == f"- `train`: {LEFT.reason}. `measure.budget_s=410` allows for that"


def test_a_hostile_name_breaks_no_row_and_opens_no_tag() -> None:
    name = "a|b`<img src=x>\nline"
    text = comment([replace(SLOWER, workload=name, base=Side(name, "0" * 40)).as_json()])
    (row,) = (line for line in text.splitlines() if line.startswith("| `"))
    assert row.replace("\\|", "").count("|") == 7
    assert "<img" not in text
