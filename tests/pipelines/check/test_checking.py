"""`perfsweep check`: one planted defect after the other is told in plain words, and sound workloads pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines import cli
from perfsweep.pipelines.check.rules import Defect
from perfsweep.testing.conformance import NotConformant, check_workload

pytestmark = pytest.mark.slow

SOUND = ["Job", "ReadsSwitched", "Quiet", "Counted"]
DEFECTS = [
    ("Unseeded", Defect.NOT_REPEATABLE, "already after one iteration, so look at setup()"),
    ("UnseededStep", Defect.NOT_REPEATABLE, "after some iterations, so look at step()"),
    ("NoEvidence", Defect.NO_EVIDENCE, "no evidence to compare for losses; evidence() returns x, sums"),
    ("NoChecks", Defect.NO_EVIDENCE, "no checks are declared"),
    ("FrozenEvidence", Defect.NO_EVIDENCE, "the same after one iteration and after many"),
    ("Wrong", Defect.RESULTS_CHANGE, "halves=on"),
    ("TooRough", Defect.RESULTS_CHANGE, "declared tolerance, it departs from the baseline: x"),
    ("OtherData", Defect.DATA_CHANGE, "halves=on: data_digest() differs from the base's"),
    ("Reads", Defect.HOST_READS, ".item() in "),
    ("Global", Defect.STATE_LEAKS, "a second set-up in the same process ends elsewhere"),
    ("Setting", Defect.STATE_LEAKS, "fp32_precision was cuda.matmul ieee, "),
    ("Cached", Defect.STATE_LEAKS, "what the first left in context.cache_dir"),
    ("StaleJob", Defect.STATE_LEAKS, "reset() does not start from the same state"),
    ("Elsewhere", Defect.FAILS, "baseline: it cannot act here: halves=off: needs another planet"),
    ("Stands", Defect.FAILS, "progress() must grow"),
]


def check(name: str, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["check", f"toys.defective:{name}", *words])
    said = capsys.readouterr()
    return int(exit_.value.code or 0), " ".join([*said.out.split(), *said.err.split()])


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_workload_keeps_its_contract(name: str) -> None:
    found = check_workload(f"toys.defective:{name}")
    assert found.levels and not found.left_out


def test_what_was_looked_at_is_said_of_a_sound_one(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = check("Sound", capsys)
    assert (status, "no defects" in out) == (0, True), out


@pytest.mark.parametrize(("name", "defect", "words"), DEFECTS, ids=[case[0] for case in DEFECTS])
def test_a_planted_defect_is_named_and_no_other(name: str, defect: Defect, words: str) -> None:
    with pytest.raises(NotConformant) as broken:
        check_workload(f"toys.defective:{name}")
    said = str(broken.value)
    assert words in said
    assert [other.value for other in Defect if f"{other.value}: " in said] == [defect.value], said


def test_levels_alone_are_judged_where_the_baseline_is_left_out() -> None:
    found = check_workload("toys.defective:Reads", levels={"halves": ["on"]}, baseline=False)
    assert found.levels == ("halves=on",)
    with pytest.raises(NotConformant, match="halves=on"):
        check_workload("toys.defective:Wrong", levels={"halves": ["on"]}, baseline=False)


def test_a_limit_that_was_chosen_is_no_defect_and_is_told_as_what_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out = check("Slow", capsys, "measure.timeout_s=8")
    assert (status, "no defects" in out) == (0, True), out
    assert "slow=on: did not end within 8 s (measure.timeout_s); give it more with" in out


def test_only_the_toggles_that_are_named_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = check("Ignored", capsys, "--toggles", "counted,uncounted")
    assert status == 1
    assert out.count(Defect.NOTHING_CHANGES.value) == 2
    assert "misspelt" not in out


def test_a_crash_is_told_with_its_line_and_its_traceback_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from toys import defective

    monkeypatch.chdir(tmp_path)
    status, out = check("Raises", capsys)
    assert status == 1 and Defect.FAILS.value in out and out.count("1 defect in") == 1
    assert "ValueError: the toy was told to break: [batch, dim] is no shape [/batch]" in out
    assert f"{Path(defective.__file__).name}:" in out
    assert "log: runs/check-toys.defective-Raises/log.txt" in out
    log = Path("runs/check-toys.defective-Raises/log.txt").read_text()
    assert "Traceback (most recent call last)" in log
    assert "ValueError: the toy was told to break" in log


def test_the_template_of_new_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        cli.main(["new", "fresh_start"])
    with pytest.raises(SystemExit) as exit_:
        cli.main(["check", "fresh_start:FreshStart", "--toggles", "prepare"])  # others are not the template's
    assert exit_.value.code == 0, capsys.readouterr().out
