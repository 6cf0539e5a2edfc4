"""Policies as files: what is written is read, rows follow their names, and whatever is wrong is named."""

from __future__ import annotations

import pickle

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover import (
    SavedPolicy,
    policy_from_state_dict,
    random_policy,
    read_policy,
    save_policy,
)
from perfsweep.workloads.prover.data.generator import generate
from perfsweep.workloads.prover.data.knowledge import Vocabulary
from perfsweep.workloads.prover.maths.policy import PolicyShape, make_weights
from perfsweep.workloads.prover.policy_file import FORMAT, VERSION, policy_of

KINSHIP = generate("kinship", 3, 0, 0.2, 0)
VOCABULARY = Vocabulary.of(KINSHIP)
POLICY = random_policy(KINSHIP, embedding=8, width=16, layers=1)


def content(**changed):
    """What a file holds, with some of its fields changed; None leaves one out."""
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "predicates": list(POLICY.predicates),
        "constants": list(POLICY.constants),
        "tensors": dict(POLICY.tensors),
        **changed,
    }
    return {name: value for name, value in whole.items() if value is not None}


def tensors(**changed):
    """The policy's tensors, some changed (dots written as __); None leaves one out."""
    merged = {**POLICY.tensors, **{name.replace("__", "."): value for name, value in changed.items()}}
    return {name: tensor for name, tensor in merged.items() if tensor is not None}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_saved_policy_is_read_as_it_was(tmp_path):
    save_policy(POLICY, tmp_path / "policy.pt")
    found = read_policy(tmp_path / "policy.pt")
    assert (found.predicates, found.constants) == (POLICY.predicates, POLICY.constants)
    assert same(found.tensors, POLICY.tensors)
    assert (found.shape, found.arity) == (PolicyShape(8, 16, 1), 2)


def test_tables_of_four_arguments_are_kept_by_their_places():
    names, shape = Vocabulary(("p",), ("a", "b"), arity=4), PolicyShape(2, 3, 1)
    weights = make_weights(shape, names, 0)
    assert same(policy_of(weights, shape, names).weights_for(names), weights)


def test_rows_follow_their_names_whatever_their_order():
    """Tables with relations and constants in reverse become those of the data; special rows stay behind."""
    turned = dict(POLICY.tensors)
    for table, names in (
        ("predicates", POLICY.predicates),
        *((f"arguments.{i}", POLICY.constants) for i in (0, 1)),
    ):
        rows = list(range(len(turned[f"{table}.weight"])))
        rows[1 : 1 + len(names)] = reversed(rows[1 : 1 + len(names)])
        turned[f"{table}.weight"] = turned[f"{table}.weight"][rows]
    other = SavedPolicy(POLICY.predicates[::-1], POLICY.constants[::-1], turned)
    assert same(other.weights_for(VOCABULARY), POLICY.weights_for(VOCABULARY))
    mislabelled = SavedPolicy(POLICY.predicates[::-1], POLICY.constants, turned)
    assert not same(mislabelled.weights_for(VOCABULARY), POLICY.weights_for(VOCABULARY))


def test_tensors_of_other_names_are_converted_by_a_list_of_names():
    theirs = {f"net.{name}": tensor for name, tensor in POLICY.tensors.items()}
    names = {f"net.{name}": name for name in POLICY.tensors}
    twice = {**names, "net.out.bias": "hidden.bias"}
    found = policy_from_state_dict(theirs, POLICY.predicates, POLICY.constants, names)
    assert same(found.tensors, POLICY.tensors)
    with pytest.raises(ConfigError, match=r"no tensor trunk\.0\.linear\.weight \(it has net\.predicates"):
        policy_from_state_dict(theirs, POLICY.predicates, POLICY.constants)
    for wrong, says in (({"elsewhere": "out.bias"}, "no tensor elsewhere"), (twice, "two tensors one name")):
        with pytest.raises(ConfigError, match=says):
            policy_from_state_dict(theirs, POLICY.predicates, POLICY.constants, wrong)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": None}, "the file is no policy of this workload .it has version, predicates"),
        ({"version": 2}, "has version 2 and only 1 can be read"),
        ({"constants": None}, "the file has no constants"),
        ({"decay": "half"}, "decay is 'half' and must be a number above 0 and at most 1"),
        ({"optimizer": {}}, "has a field optimizer, which would be ignored"),
        ({"constants": [*POLICY.constants[:-1], POLICY.constants[0]]}, "a name is twice in constants"),
        ({"constants": list(range(3))}, "constants must be a list of names, in the order of the rows"),
        ({"tensors": 3}, "tensors must be a mapping"),
        ({"tensors": tensors(out__bias=3)}, r"out\.bias is a int and must be a tensor"),
        ({"tensors": tensors(out__bias=None)}, r"there is no tensor out\.bias"),
        (
            {"tensors": tensors(head__weight=torch.ones(2))},
            r"head\.weight is none of the network's and would be ignored",
        ),
        ({"tensors": tensors(out__bias=torch.zeros(9))}, r"out\.bias is \[9\] and should be \[8\]"),
        (
            {"tensors": tensors(out__bias=torch.zeros(8).double())},
            r"out\.bias is float64; convert it to float32",
        ),
        (
            {"tensors": tensors(out__bias=torch.full((8,), float("nan")))},
            r"out\.bias holds numbers that are not",
        ),
        ({"tensors": tensors(trunk__0__linear__weight=torch.zeros(3))}, r"is \[3\] and should be a matrix"),
        (
            {"tensors": tensors(predicates__weight=POLICY.tensors["predicates.weight"] + 1)},
            "row 0 of predicates",
        ),
    ],
)
def test_a_file_that_is_no_whole_policy_is_refused_by_name(tmp_path, changed, says):
    torch.save(content(**changed), tmp_path / "policy.pt")
    with pytest.raises(ConfigError) as refusal:
        read_policy(tmp_path / "policy.pt").weights_for(VOCABULARY)
    message = str(refusal.value)
    assert message.startswith(f"{tmp_path / 'policy.pt'}: ")
    assert "\n" not in message
    refusal.match(says)


class Foreign:
    """Something that only code of ours could read."""


@pytest.mark.parametrize("damage", ["truncated", "text", "pickled", "missing", "folder"])
def test_a_damaged_or_foreign_file_is_refused_in_one_sentence(tmp_path, damage):
    file = tmp_path / "policy.pt"
    if damage == "truncated":
        torch.save(content(), file)
        file.write_bytes(file.read_bytes()[:-200])
    elif damage == "text":
        file.write_text("no policy")
    elif damage == "pickled":
        file.write_bytes(pickle.dumps(Foreign(), protocol=2))
    elif damage == "folder":
        file.mkdir()
    says = (
        "there is no such file"
        if damage in ("missing", "folder")
        else "damaged or was not written by torch.save"
    )
    with pytest.raises(ConfigError, match=says) as refusal:
        read_policy(file, where="workload.weights=policy.pt")
    assert str(refusal.value).startswith("workload.weights=policy.pt: ")
    assert "\n" not in str(refusal.value)


def test_a_network_of_another_kind_is_told_from_a_policy(tmp_path):
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "net.pt")
    with pytest.raises(
        ConfigError, match=r"no policy of this workload \(it has weight, bias\).*policy_from_state_dict"
    ):
        read_policy(tmp_path / "net.pt")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (generate("kinship", 4, 0, 0.2, 0), r"no row for the constant '\w+' of the data \(and \d+ more\)"),
        (generate("kinship", 2, 0, 0.2, 0), r"the data do not have its constant"),
        (generate("countries", 40, 0, 0.2, 0), r"no row for the relation 'locatedIn' of the data"),
    ],
    ids=["more", "fewer", "others"],
)
def test_a_policy_of_other_relations_or_constants_is_refused(other, says):
    with pytest.raises(ConfigError, match=says):
        POLICY.weights_for(Vocabulary.of(other))


@pytest.mark.parametrize(
    ("arity", "says"), [(1, r"set workload\.arity=2$"), (3, r"there is no tensor arguments\.2\.weight")]
)
def test_a_policy_of_another_number_of_arguments_is_refused(arity, says):
    with pytest.raises(ConfigError, match=rf"tables for 2 arguments.*{says}"):
        POLICY.weights_for(Vocabulary(VOCABULARY.predicates, VOCABULARY.constants, arity))


def test_a_file_that_exists_or_cannot_be_written_is_named(tmp_path):
    save_policy(POLICY, tmp_path / "policy.pt")
    with pytest.raises(ConfigError, match=r"policy\.pt exists; give another name"):
        save_policy(POLICY, tmp_path / "policy.pt")
    with pytest.raises(ConfigError, match=r"nowhere/policy\.pt cannot be written"):
        save_policy(POLICY, tmp_path / "nowhere/policy.pt")
