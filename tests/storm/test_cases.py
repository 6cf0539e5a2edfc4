"""Each fault of the two lists has a case; one that breaks off is told, and leaves nothing that runs."""

from __future__ import annotations

import re

import pytest
from storm import cases_decisions, cases_jobs, cases_nodes, cases_submissions
from storm.stage import CASES, tried

from perfsweep.slurm.errors import ClusterError

_REGISTERED = (cases_jobs, cases_submissions, cases_decisions, cases_nodes)


def test_every_number_of_the_lists_is_played() -> None:
    wanted = [f"F{n}" for n in range(1, 27)] + [f"D{n}" for n in range(1, 15)] + ["N1", "N2"]
    numbers = [match[0] for id in CASES if (match := re.match(r"[FDN]\d+", id))]
    assert list(dict.fromkeys(numbers)) == wanted, "in their order"


@pytest.mark.parametrize("error", [AssertionError("two\n lines"), ClusterError("no answer"), KeyError("x")])
def test_what_breaks_a_case_off_is_a_problem_of_that_case_alone(error: Exception) -> None:
    problems: list[str] = []

    def broken() -> str:
        raise error

    assert tried(problems, broken) is None
    assert tried(problems, lambda: "done") == "done"
    (problem,) = problems
    assert type(error).__name__ in problem and "\n" not in problem
