"""Packs that share a job: who goes together, what each gets, and how the job ends."""

from __future__ import annotations

import pytest

from pipelines.execution.shared_job import combined, job_of, jobs_for, shares

ALIKE = {f"p{number:03d}": {} for number in range(5)}


@pytest.mark.parametrize(
    ("resources", "alive", "jobs"),
    [
        (ALIKE, [], [("p000", "p001"), ("p002", "p003"), ("p004",)]),
        (ALIKE, ["p001+p004", "p900"], [("p000", "p002"), ("p001", "p004"), ("p003",)]),
        (ALIKE, ["p002"], [("p000", "p001"), ("p002",), ("p003", "p004")]),
        ({"p000": {}, "p001": {"memory": "9G"}, "p002": {}}, [], [("p000", "p002"), ("p001",)]),
        ({}, ["p000+p001"], []),
    ],
    ids=["pairs", "living pair", "living single", "other memory", "nothing left"],
)
def test_packs_go_together_where_they_ask_for_the_same_and_stay_where_they_live(
    resources: dict[str, dict[str, object]], alive: list[str], jobs: list[tuple[str, ...]]
) -> None:
    assert jobs_for(resources, 2, alive) == jobs


def test_a_pack_is_found_in_its_job() -> None:
    assert job_of("p001", ["p000+p001", "p002"]) == "p000+p001"
    assert job_of("p00", ["p000+p001", "p002"]) is None


def test_gpus_and_cores_are_shared_out_equally() -> None:
    assert shares(["4", "5", "6", "7"], 2) == [["4", "5"], ["6", "7"]]
    assert shares(["0", "1", "2"], 2) == [["0"], ["1"]]
    assert shares([], 2) == [[], []]


@pytest.mark.parametrize(
    ("statuses", "status"),
    [([0, 0], 0), ([0, 75], 75), ([79, 75, 1], 75), ([79, 0], 79), ([0, 1, 137], 137), ([1, 79], 79)],
)
def test_a_job_ends_as_the_pack_that_needs_most(statuses: list[int], status: int) -> None:
    assert combined(statuses) == status
