"""What is said of a workload whose observations speak against it, and what is not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from perfsweep.pipelines.check import rules
from perfsweep.pipelines.check.rules import Defect, Finding
from perfsweep.workloads.api import Check, Evidence, Level

CHECKS = (Check("loss"),)


def of(*losses: float) -> Evidence:
    return Evidence({"loss": np.array(losses)})


ONE, TWO = of(1.0, 2.0), of(1.0, 3.0)


def told(findings: list[Finding]) -> list[Defect]:
    return [finding.defect for finding in findings]


@pytest.mark.parametrize(
    ("runs", "early", "defects", "words"),
    [
        ((ONE, ONE, ONE), (), [], ""),
        (
            (ONE, TWO, ONE),
            (),
            [Defect.STATE_LEAKS],
            "a second trial finds what the first left in context.cache_dir",
        ),
        ((ONE, ONE, TWO), (), [Defect.NOT_REPEATABLE], "after some iterations, so look at step()"),
        ((ONE, TWO, TWO), (ONE, ONE), [Defect.NOT_REPEATABLE], "after some iterations, so look at step()"),
        (
            (ONE, ONE, TWO),
            (ONE, TWO),
            [Defect.NOT_REPEATABLE],
            "already after one iteration, so look at setup()",
        ),
    ],
)
def test_runs_of_one_seed_must_end_equally(runs: tuple, early: tuple, defects: list, words: str) -> None:
    found = rules.not_repeatable("Mine", CHECKS, runs, early)
    assert told(found) == defects
    assert all(words in finding.text and finding.subject == "Mine" for finding in found)


@pytest.mark.parametrize(
    ("checks", "evidence", "early", "words"),
    [
        ((), ONE, None, "no checks are declared"),
        ((Check("weights"),), ONE, None, "no evidence to compare for weights; evidence() returns loss"),
        (CHECKS, of(np.nan), None, "the baseline cannot be compared with itself"),
        (CHECKS, ONE, ONE, "the same after one iteration and after many"),
        (CHECKS, ONE, TWO, None),
        (CHECKS, ONE, None, None),
    ],
)
def test_evidence_must_show_what_was_computed(checks: tuple, evidence: Evidence, early, words) -> None:
    found = rules.no_evidence("Mine", checks, evidence, early)
    assert told(found) == ([Defect.NO_EVIDENCE] if words else [])
    assert not words or words in found[0].text


WITNESS = Level("on", witness="calls")


@pytest.mark.parametrize(
    ("level", "base", "arm", "same", "words"),
    [
        (WITNESS, {"calls": 2.0}, {"calls": 3.0}, True, None),
        (WITNESS, {"calls": 2.0}, {"calls": 2.0}, False, "its witness calls is 2 with and without it"),
        (WITNESS, {"calls": 2.0}, {"ops": 2.0, "all": 1.0}, False, "no counter; .* There are: all, ops"),
        (WITNESS, {"ops": 1.0}, {"calls": None}, True, None),
        (Level("on", witness="cache_hits"), {"cache_hits": 0.0}, {"cache_hits": 0.0}, True, None),
        (Level("on"), {"ops": 1.0}, {"ops": 1.0}, False, None),
        (
            Level("on"),
            {"ops": 1.0, "gc_runs": 1.0},
            {"ops": 1.0, "gc_runs": 2.0},
            True,
            "no counter and no result",
        ),
        (Level("on", env={"A": "1"}), {"ops": 1.0}, {"ops": 1.0}, True, None),
        (Level("on", per_gpu=True), {"ops": 1.0}, {"ops": 1.0}, True, None),
    ],
)
def test_a_level_must_change_its_witness_a_counter_or_a_result(level, base, arm, same, words) -> None:
    found = rules.nothing_changes(level, "way=on", base, arm, same)
    assert told(found) == ([Defect.NOTHING_CHANGES] if words else [])
    if words:
        assert re.search(words, found[0].text)


def parts(**lengths: int) -> Evidence:
    tensor = np.arange(6.0) + len(str(lengths))
    return Evidence({"loss": tensor}, parts={"loss": lengths})


@pytest.mark.parametrize(
    ("base", "arm", "words"),
    [
        (ONE, TWO, None),
        (
            Evidence({"loss": np.zeros((2, 3))}),
            Evidence({"loss": np.zeros((3, 2))}),
            r"has shape [3, 2], and [2, 3]",
        ),
        (ONE, Evidence({}), "evidence loss is of the base alone"),
        (parts(a=2, b=4), parts(b=4, a=2, c=0), "evidence loss has the piece c of 0 entries"),
        (
            parts(a=2, b=4),
            Evidence({"loss": np.zeros(6)}, parts={"loss": {"b": 4, "a": 2}}),
            "in another order",
        ),
    ],
)
def test_results_in_another_form_are_no_defect_and_told_apart(base: Evidence, arm: Evidence, words) -> None:
    found = rules.other_form(base, arm, CHECKS)
    assert found is None if words is None else found is not None and words in found


@pytest.mark.parametrize(
    ("lines", "base", "arms", "told_of"),
    [
        (["train.py:3"], {"host_reads": 3.0}, [{"host_reads": 3.0}, None], True),
        (["train.py:3"], {"host_reads": 3.0}, [{"host_reads": 2.5}], True),
        (["train.py:3"], {"host_reads": 3.0}, [{"host_reads": 2.0}], False),
        (["train.py:3"], {"host_reads": 1.0}, [{"host_reads": 0.0}], False),
    ],
)
def test_reads_of_the_host_are_told_unless_a_level_does_without(lines, base, arms, told_of: bool) -> None:
    found = rules.host_reads("Mine", lines, base, arms)
    assert told(found) == ([Defect.HOST_READS] if told_of else [])
    assert not found or found[0].text.startswith("train.py:3: on a GPU the host waits")
