"""What a configuration may hold, and the one sentence about what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.toggles import TOGGLES


@pytest.mark.parametrize(
    ("field", "wrong", "right", "rule"),
    [
        ("size", 0, 1, "a whole number from 1"),
        ("size", True, 2, "a whole number from 1"),
        ("embedding", 0, 1, "a whole number from 1"),
        ("width", 1.5, 1, "a whole number from 1"),
        ("provable_limit", 0, 1, "a whole number from 1"),
        ("data_seed", -1, 0, "a whole number from 0"),
        ("policy_seed", -1, 0, "a whole number from 0"),
        ("query_seed", -1, 0, "a whole number from 0"),
        ("corruption_seed", -1, 0, "a whole number from 0"),
        ("distractors", -1, 0, "a whole number from 0"),
        ("layers", -1, 0, "a whole number from 0"),
        ("imitation", -1, 0, "a whole number from 0"),
        ("queries", 0, None, "null or a whole number from 1"),
        ("corruptions", 0, 1, "null or a whole number from 1"),
        ("arity", 5, 4, "a whole number from 1 to 4"),
        ("arity", 0, 3, "a whole number from 1 to 4"),
        ("hide", 0, 0.01, "between 0 and 1"),
        ("hide", 1, 0.99, "between 0 and 1"),
        ("gain", 0, 0.1, "a number above 0"),
        ("memory_gb", 0, 0.5, "null or a number above 0"),
        ("modes", "up", "tail, head", "a list of: head, tail, both"),
        ("modes", ",", "both,", "a list of: head, tail, both"),
        (
            "data",
            "family",
            "./family",
            "the path of a folder with a slash in it, such as ./family, or one of",
        ),
        ("weights", "", "p.pt", "null or the path of a file"),
    ],
)
def test_a_field_out_of_range_is_named_with_its_rule(field: str, wrong: Any, right: Any, rule: str) -> None:
    assert getattr(ProverConfig(**{field: right}), field) == right
    with pytest.raises(ConfigError, match=rf"^workload\.{field}={wrong} cannot be used: it must be {rule}"):
        ProverConfig(**{field: wrong})


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


def test_narrow_ids_are_for_data_that_have_no_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (dtype,) = [toggle for toggle in TOGGLES if toggle.name == "index_dtype"]
    refused = dtype.level("int16").refused
    assert refused is not None
    found = {}
    for largest in (2**15 - 1, 2**15):
        monkeypatch.setattr(ProverConfig, "largest_id", largest)
        found[largest] = refused(ProverConfig(), {})
    assert found == {
        2**15 - 1: None,
        2**15: "ids reach 32768, and int16 ends at 32767: use index_dtype=int32",
    }


def test_the_largest_id_is_that_of_the_data_itself() -> None:
    few, many = (ProverConfig(data="kinship", size=size).largest_id for size in (1, 3))
    assert 0 < few < many
    assert ProverConfig(data="/nowhere/at/all").largest_id == 0
