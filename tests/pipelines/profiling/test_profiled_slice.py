"""Which iterations a profile covers."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.profiling.profiled_slice import Situation, Slice, parse, resolve
from perfsweep.workloads.errors import ConfigError

TRAINING = Situation("steps", cadence=4, lead=2, active=3, iterations=6)
FIT = Situation("job", cadence=1, lead=2, active=3, iterations=6)

MEANT = [
    ("step", False, TRAINING, Slice(2, 1, movable=True)),
    ("first", True, TRAINING, Slice(0, 1, cold=True)),
    ("5:9", True, TRAINING, Slice(5, 4)),
    ("job", True, FIT, Slice(0, None)),
    ("auto", True, TRAINING, Slice(0, 8)),  # whole cadences
    ("auto", True, FIT, Slice(0, None)),
    ("auto", False, TRAINING, Slice(2, 3, movable=True)),
    ("auto", False, FIT, Slice(2, 3, movable=True)),
]


@pytest.mark.parametrize(("text", "samples", "here", "meant"), MEANT, ids=str)
def test_a_slice_means_iterations(text: str, samples: bool, here: Situation, meant: Slice) -> None:
    assert resolve(text, samples, here) == meant


@pytest.mark.parametrize("text", ["slab", "3", "9:5", "5:5", "-1:4", "a:b", ""])
def test_an_unknown_slice_is_refused_by_naming_the_choices(text: str) -> None:
    with pytest.raises(ConfigError, match=r"profile\.slice=.*10:40"):
        parse(text)


def test_training_has_no_whole_job() -> None:
    with pytest.raises(ConfigError, match="trains for ever"):
        resolve("job", True, TRAINING)


def test_a_slice_says_what_it_is() -> None:
    shown = [Slice(3, 1), Slice(3, 4), Slice(0, None), Slice(0, 1, cold=True)]
    assert list(map(str, shown)) == [
        "iteration 3",
        "iterations 3:7",
        "a whole job",
        "the first iteration of the process",
    ]
