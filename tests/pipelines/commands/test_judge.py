"""`perfsweep judge` on a script's commits: counted work, changed results, nothing at all, and mistakes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from git_repository import begin, commit, git, state
from versioned import TRAIN, scripted, work

from perfsweep.pipelines.cli import main
from perfsweep.pipelines.exits import DONE, MISTAKE, SOME_FAILED, UNDECIDED
from perfsweep.pipelines.store.records import SweepFolder, read_record
from perfsweep.pipelines.store.trial_files import read_iterations

SMALL = (
    "workload=script",
    "workload.path=train.py",
    *("measure.iterations=10", "measure.warmup_max=10", "measure.evidence_iterations=4"),
    *("measure.budget_s=1", "measure.servers=1", "measure.repeats=0", "measure.timed_parity=false"),
)


# A machine with others on it scatters by half; ten times the counted work is beyond that. Where they disturb
# every trial, no verdict is called.
DECIDING = ("measure.servers=4", "measure.budget_s=90", "measure.precision=0.3", "measure.margin=0.2")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = scripted(tmp_path / "repo")
    git(root, "reset", "-q", "--hard", "changed")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def judge(*words: str, more: tuple[str, ...] = ()) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["judge", *words, "--", *SMALL, f"runs={tmp_path / 'runs'}", *more])
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return judge


@pytest.mark.slow
def test_more_counted_work_is_slower_and_nothing_of_the_users_is_touched(root: Path, judge) -> None:
    before = state(root)
    status, said, _ = judge("base", "slow", "--json", more=DECIDING)
    found = json.loads(said)
    assert found["low"] > 1 and found["results"] == "identical", found
    assert (status, found["verdict"]) == (SOME_FAILED, "slower") or "disturbed" in found["reason"], found
    assert found["base"]["commit"] == git(root, "rev-parse", "base")
    assert state(root) == before


@pytest.mark.slow
def test_versions_of_a_short_script_take_turns_in_regions_of_a_third_of_its_iterations(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [word for word in SMALL if not word.startswith("measure.iterations=")]
    options = (*few, "measure.region_s=5", "workload.args='600'", f"runs={tmp_path / 'runs'}")
    with pytest.raises(SystemExit):
        main(["judge", "base", "comment", "--json", "--", *options])
    said = capsys.readouterr()
    assert said.out, said.err
    found = json.loads(said.out)
    assert (found["results"], found["rounds"]) == ("identical", 6), found
    folder = SweepFolder(Path(found["sweep"]))
    records = {
        (arm.id, stage): (read_record(path), path)
        for arm in folder.read_manifest().arms
        for path, _, stage, _ in folder.trial_dirs(arm.id)
    }
    (one, starts), (other, others) = (
        (record, read_iterations(path)["start_ns"])
        for (_, stage), (record, path) in records.items()
        if stage == "r000"
    )
    # A third of 600, rounded up to whole periods of its own, which its evidence may or may not show.
    for timed in (one, other):
        assert timed is not None
        shown, _ = records[timed.arm, "evidence"]
        assert shown is not None and 0 <= timed.iterations - 200 < (shown.cadence or 1), (timed, shown)
    assert starts[0] < others[-1] and others[0] < starts[-1], "their regions overlap: they took turns"


@pytest.mark.slow
def test_changed_results_are_worse_however_fast_they_come(root: Path, judge) -> None:
    status, said, _ = judge("base", "changed")
    assert status == SOME_FAILED and said.startswith("different results: changed (") and said.count("\n") == 1


@pytest.mark.slow
def test_an_uncommitted_change_is_judged_against_head_by_default(root: Path, judge) -> None:
    (root / "work.py").write_text(work(scale=1.01))
    status, said, _ = judge()
    assert status == SOME_FAILED and said.startswith("different results: worktree against HEAD (")


@pytest.mark.slow
def test_a_head_that_does_not_run_is_worse_than_a_base_that_does(root: Path, judge) -> None:
    (root / "train.py").write_text(TRAIN.replace("work.burn()", "work.burn(1)"))
    status, said, _ = judge("changed")
    assert status == SOME_FAILED and said.startswith("failed: worktree") and "burn() takes 0" in said


@pytest.mark.slow
def test_where_neither_runs_the_head_is_not_called_worse(root: Path, judge) -> None:
    (root / "train.py").write_text("import torch\nimport work\nraise SystemExit('broken too')\n")
    status, said, _ = judge("broken")
    assert status == UNDECIDED and said.startswith("undecided: worktree against broken"), said
    assert "neither of the two runs: " in said and "broken too" in said


@pytest.mark.slow
def test_the_same_code_is_no_difference_without_a_measurement(root: Path, judge, tmp_path: Path) -> None:
    status, said, _ = judge("base", "prose")
    assert status == DONE and said.startswith("no difference: prose") and "same code" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "perfsweep judge: nowhere is no commit of"),
        (("empty", "base"), "empty has no train.py; name commits that have the workload"),
        (("base", "slow", "changed"), "judge takes at most BASE and HEAD"),
        (("base", "base"), "base is named twice"),
        ((), "has neither uncommitted changes nor commits beyond main"),
    ],
)
def test_a_mistake_is_one_sentence(root: Path, judge, words: tuple[str, ...], sentence: str) -> None:
    status, said, complaint = judge(*words)
    assert (status, said) == (MISTAKE, "")
    assert sentence in complaint and complaint.count("\n") == 1


@pytest.mark.slow
def test_a_command_runs_each_versions_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = begin(tmp_path / "repo")
    commit(
        root,
        {"train.py": "import work\nprint('{\"loss\":', work.LOSS, '}')\n", "work.py": "LOSS = 1.0"},
        "base",
    )
    commit(root, {"work.py": "LOSS = 1.01"}, "changed")
    (root / "work.py").write_text("LOSS = 5.0")
    monkeypatch.chdir(root)
    before = state(root)
    words = (
        *(
            "workload=command",
            f"workload.command={sys.executable} -S train.py",
            "workload.evidence.json=[loss]",
        ),
        *("measure.budget_s=1", "measure.servers=1", "measure.repeats=0", f"runs={tmp_path / 'runs'}"),
    )
    with pytest.raises(SystemExit) as end:
        main(["judge", "base", "changed", "--json", "--", *words])
    said = capsys.readouterr()
    assert end.value.code == SOME_FAILED, said.err
    found = json.loads(said.out)
    assert found["verdict"] == "different results" and found["deviation"].startswith("loss: 0.01"), found
    assert state(root) == before
