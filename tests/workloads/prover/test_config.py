"""What a configuration may hold, and the one sentence about what it may not."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover import random_policy, read_problem, save_policy
from perfsweep.workloads.prover.config import SIZES, ProverConfig
from perfsweep.workloads.prover.workload import Prover


@pytest.mark.parametrize(
    ("field", "wrong", "right", "rule"),
    [
        ("size", 0, 1, "a whole number from 1"),
        ("width", 1.5, 1, "null or a whole number from 1"),
        ("policy_seed", -1, 0, "a whole number from 0"),
        ("layers", -1, 0, "null or a whole number from 0"),
        ("queries", 0, None, "null or a whole number from 1"),
        ("arity", 5, 4, "a whole number from 1 to 4"),
        ("hide", 0, 0.01, "between 0 and 1"),
        ("hide", 1, 0.99, "between 0 and 1"),
        ("gain", 0, 0.1, "a number above 0"),
        ("memory_gb", 0, 0.5, "null or a number above 0"),
        ("modes", "up", "tail, head", "a list of: head, tail, both"),
        ("data", "family", "./family", "the path of a folder with a slash in it, such as ./family"),
        ("weights", "", "p.pt", "null or the path of a file"),
    ],
)
def test_a_field_out_of_range_is_named_with_its_rule(field: str, wrong: Any, right: Any, rule: str) -> None:
    assert getattr(ProverConfig(**{field: right}), field) == right
    with pytest.raises(ConfigError, match=rf"^workload\.{field}={wrong} cannot be used: it must be {rule}"):
        ProverConfig(**{field: wrong})


def test_without_a_word_a_small_family_is_evaluated_by_a_random_policy() -> None:
    said = [f"{name}={value}" for name, value in vars(ProverConfig()).items() if value is not None]
    assert " ".join(said) == (
        "data=kinship data_seed=0 size=3 hide=0.2 distractors=0 arity=2 variables=1000 policy_seed=0"
        " gain=4.25 imitation=0 queries=6 query_seed=0 corruptions=8 corruption_seed=0 modes=both"
        " provable_limit=3"
    )
    assert SIZES == {"embedding": 32, "width": 32, "layers": 2}
    excused = {check.name: check.excused for check in Prover.checks if check.excused}
    assert excused.pop("rank") == "ambiguous_query"
    assert excused == dict.fromkeys(excused, "ambiguous") and excused.keys() >= {
        "success",
        "depth",
        "actions",
    }


def test_relations_with_one_argument_have_no_tail() -> None:
    assert ProverConfig(arity=1, modes=" head ").mode_names == ("head",)
    for modes in ("both", "head,tail"):
        with pytest.raises(ConfigError, match="must be head, for relations with one argument have no tail"):
            ProverConfig(arity=1, modes=modes)


@pytest.mark.parametrize(("field", "value"), [("policy_seed", 1), ("gain", 2.0)])
def test_what_is_about_random_weights_cannot_stand_beside_a_file(field: str, value: float) -> None:
    said = rf"workload\.{field}={value} is about random weights, and workload\.weights=p\.pt gives others"
    with pytest.raises(ConfigError, match=said):
        ProverConfig(weights="p.pt", **{field: value})
    ProverConfig(**{field: value})


def test_the_largest_id_is_that_of_the_data_itself() -> None:
    few, many = (ProverConfig(data="kinship", size=size).largest_id for size in (1, 3))
    assert 0 < few < many


FOLDER = {"train.txt": "f(ann,bob).", "test.txt": "h(ann,bob).", "rules.txt": "r:1:f(x,y) -> h(x,y)"}


@pytest.mark.parametrize(
    ("changed", "config", "says"),
    [
        ({"train.txt": "f(ann,Paris).", "rules.txt": "r:1:f(x,Paris) -> h(x,Paris)"}, {}, "the term 'Paris'"),
        ({"train.txt": "f(ann,bob,cy)."}, {}, "line 1: has more than 2 arguments; set workload.arity"),
        ({}, {"arity": 3, "weights": "policy.pt"}, "there is no tensor arguments.2.weight"),
        ({}, {"weights": "policy.pt", "width": 9}, "workload.width=9 is not its 8; leave it out"),
        ({"test.txt": "f(ann,cy)."}, {"weights": "policy.pt"}, "line 1: asks about the constant cy"),
        ({"train.txt": "f(ann,bob).\nf(cy,di)."}, {"weights": "policy.pt"}, "no row for the constant 'cy'"),
        (
            {"domain2constants.txt": "men bob\nwomen ann"},
            {},
            "workload.modes=both: no query has a valid corr",
        ),
        ({"policy.pt": "no policy"}, {"weights": "policy.pt"}, "damaged or was not written by torch.save"),
    ],
)
def test_what_files_say_that_cannot_be_used_is_refused_when_the_plan_is_made(
    tmp_path: Path, changed: dict[str, str], config: dict[str, Any], says: str
) -> None:
    for name, text in FOLDER.items():
        (tmp_path / name).write_text(text)
    save_policy(random_policy(read_problem(tmp_path), 8, 8, 1), tmp_path / "policy.pt")
    sizes = {"embedding": 8, "width": 8, "layers": 1}
    given = {**sizes, **config, **({"weights": str(tmp_path / "policy.pt")} if "weights" in config else {})}
    Prover.planned(ProverConfig(data=str(tmp_path), **sizes, weights=str(tmp_path / "policy.pt")))
    other = tmp_path / "other"
    other.mkdir()
    for name, text in {**FOLDER, **changed}.items():
        (other / name).write_text(text)
    if "policy.pt" in changed:
        given["weights"] = str(other / "policy.pt")
    with pytest.raises(ConfigError, match=re.escape(says)) as refusal:
        Prover.planned(ProverConfig(data=str(other), **given))
    assert "\n" not in str(refusal.value)


def test_kernels_that_have_no_room_for_the_data_are_refused_when_the_plan_is_made(tmp_path: Path) -> None:
    levels = {"expand_kernel": "native"}
    space = functools.partial(Space, Prover.toggles, device=Device(compiler=True))
    body = ", ".join("f(x,y)" for _ in range(11))
    for name, text in {**FOLDER, "rules.txt": f"r:1:{body} -> h(x,y)"}.items():
        (tmp_path / name).write_text(text)
    assert space(ProverConfig()).closure(levels)["expand_kernel"] == "native"
    for config in (ProverConfig(arity=3), ProverConfig(data=str(tmp_path))):
        with pytest.raises(ConfigError, match=r"bodies of at most 10 atoms.*use expand_kernel=torch"):
            space(config).closure(levels)
