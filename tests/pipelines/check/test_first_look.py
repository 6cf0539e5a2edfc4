"""A first look at a program: how often it is run, where two runs part, and what is said to be the cause."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfsweep.pipelines.check import first_look as module
from perfsweep.pipelines.check.first_look import FirstLook, NotMeasurable
from perfsweep.pipelines.execution.spawn import Termination
from perfsweep.pipelines.store.records import Failure, Outcome, write_evidence
from perfsweep.workloads.api import Check, Evidence


class Looked(FirstLook):
    """Takes what each process would have seen from a list: losses, and what it answers besides."""

    runs: list[dict[str, Any]]
    seeds: list[str]

    def _ran(self, folder: Path, number: int) -> Termination | None:
        own = dict(self.runs[len(self.seeds)])
        self.seeds.append(module.HASH_SEEDS[number])
        ending = own.pop("ending", None)
        folder.mkdir()
        if ending is None:
            losses = np.array(own.pop("losses", [3.0, 2.0, 1.0]))
            write_evidence(
                folder, Evidence({"losses": losses, "weights": np.array(own.pop("weights", [1.0]))})
            )
            answer = {"data": "d", "sight": {"unseeded": []}, **own}
            (folder / "look.json").write_text(json.dumps(answer))
        return None if ending == "early" else ending


@pytest.fixture
def look() -> Iterator[Any]:
    made = list[FirstLook]()

    def looked(*runs: dict[str, Any]) -> Looked:
        workload: Any = SimpleNamespace(checks=(Check("losses"), Check("weights")))
        found = Looked(SimpleNamespace(), workload)  # type: ignore[arg-type]
        found.runs, found.seeds = list(runs), []
        made.append(found)
        return found

    yield looked
    for one in made:
        with one:
            pass
        assert not one._folder.exists()


OTHER = {"losses": [3.0, 2.5, 1.5]}


def test_a_program_that_repeats_is_run_twice_with_other_hash_seeds(look) -> None:
    found, said = look({"units": 4}, {}), list[str]()
    seen, parting = found.run(said.append)
    assert (seen["units"], parting) == (4, None)
    assert said == ["running it", "running it again, to see if it repeats"]
    assert found.seeds == ["0", "1"]


def test_where_two_runs_part_the_first_ones_hash_seed_is_tried_again(look) -> None:
    found, said = look({}, OTHER, {}), list[str]()
    _, parting = found.run(said.append)
    assert found.seeds == ["0", "1", "0"]
    assert said[-1] == "it did not repeat; once more, to see why"
    assert parting.iteration == 2
    assert parting.cause.startswith("The cause is the order of hashed things")


@pytest.mark.parametrize(
    ("second", "iteration"),
    [({"losses": [9.0, 2.0, 1.0]}, 1), ({"losses": [3.0, 2.0, 9.0]}, 3), ({"weights": [2.0]}, None)],
)
def test_the_iteration_counts_from_one_and_only_losses_have_it(look, second: dict, iteration) -> None:
    _, parting = look({}, second, second).run(lambda text: None)
    assert parting.iteration == iteration


@pytest.mark.parametrize(
    ("unseeded", "data", "says"),
    [
        ([], "d", "The data is the same; usual causes are a generator without a seed, several threads"),
        (["a.py:1"], "d", "or kernels that do; without a seed: a.py:1"),
        ([], "e", "The cause is data that is drawn or shuffled by a generator without a seed"),
        (["a", "b", "c", "d"], "e", "without a seed; without a seed: a; b; c"),
    ],
)
def test_the_cause_is_told_as_far_as_it_is_seen(look, unseeded: list, data: str, says: str) -> None:
    third = {"losses": [3.0, 2.0, 7.0], "data": data}
    _, parting = look({"sight": {"unseeded": unseeded}}, OTHER, third).run(lambda text: None)
    assert says in parting.cause and "; d" not in parting.cause


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"ending": Termination(Outcome.TIMEOUT, Failure(type="T", message="no end"))}, "no end"),
        ({"ending": "early"}, "its process ended early"),
        ({"failure": {"type": "ValueError", "message": "no such file"}}, "^no such file$"),
    ],
)
def test_what_cannot_be_measured_is_told_by_how_it_ended(look, own: dict, message: str) -> None:
    with pytest.raises(NotMeasurable, match=message) as refused:
        look(own).run(lambda text: None)
    assert refused.value.log.name == "log.txt" and refused.value.log.parent.name == "0"


@pytest.mark.parametrize("interrupted", [KeyboardInterrupt, OSError, None])
def test_what_was_written_for_a_look_is_removed_however_it_ends(look, interrupted) -> None:
    found = look({}, {})
    with pytest.raises(interrupted) if interrupted else nullcontext(), found:
        found.run(lambda text: None)
        if interrupted:
            raise interrupted
    assert not found._folder.exists()


def test_the_log_of_a_script_that_cannot_be_measured_stays(look) -> None:
    found = look({"ending": Termination(Outcome.FAILED, Failure(type="Killed", message="by signal 9"))})
    with pytest.raises(NotMeasurable) as reason, found:
        found.run(lambda text: None)
    assert reason.value.log.parent.is_dir()
