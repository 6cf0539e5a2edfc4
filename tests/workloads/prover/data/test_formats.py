"""Files of knowledge bases: what is understood, and how each mistake is named."""

from __future__ import annotations

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.formats import read_problem
from perfsweep.workloads.prover.data.knowledge import KnowledgeBase

GOOD = {
    "train.txt": "f(a,b).\nf(b,c)\ng(a/1.x,b-2_y(z)).",  # the last line has neither dot nor newline to spare
    "test.txt": "h(a,c)",
    "rules.txt": "r1:0.5:f(x,y), f(y,z) -> h(x,z)",
}


@pytest.fixture
def write(tmp_path):
    def folder(**changed):
        for name, text in {**GOOD, **changed}.items():
            path = tmp_path / (name if name.endswith(".txt") else f"{name}.txt")
            path.write_text(text)
        return tmp_path

    return folder


def test_names_may_hold_dots_slashes_dashes_and_parentheses(write):
    problem = read_problem(write())
    assert problem.facts == (("f", "a", "b"), ("f", "b", "c"), ("g", "a/1.x", "b-2_y(z)"))
    assert problem.test == (("h", "a", "c"),)
    assert problem.valid == ()


@pytest.mark.parametrize(
    "rule",
    ["r:1:f(x,y), f(y,z) -> h(x,z)", "r:1:f(X,Y),f(Y,Z)->h(X,Z)", "r:1:f(One,Two), f(Two,Z) -> h(One,Z)"],
)
def test_variables_are_single_letters_of_either_case_or_capitalised_names(write, rule):
    (found,) = read_problem(write(rules=rule)).rules
    assert [atom[0] for atom in (found.head, *found.body)] == ["h", "f", "f"]
    assert found.head[1:] == (found.body[0][1], found.body[1][2])


def test_a_body_keeps_its_order_and_may_begin_with_any_variable(write):
    (found,) = read_problem(write(rules="r:1:f(h,v), g(u,h) -> h(u,v)")).rules
    assert found.body == (("f", "h", "v"), ("g", "u", "h"))


def test_repeated_facts_count_once_and_are_reported(write):
    problem = read_problem(write(train="f(a,b).\nf(a,b).\nf(b,c)."))
    assert (len(problem.facts), problem.repeated) == (2, 1)
    assert len(KnowledgeBase.build(problem).facts) == 2


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"train": "f(a,b).\nf a b\n"}, r"train.txt line 2: .*relation\(a,b\).*'f a b'"),
        ({"train": "f(a,b,c)."}, r"train.txt line 1: has more than 2 arguments"),
        ({"train": "\n\n"}, r"train.txt holds no triple"),
        ({"test": "h(a,nobody)"}, r"test.txt line 1: asks about the constant nobody"),
        ({"test": "unheard(a,b)"}, r"test.txt line 1: asks for the relation unheard"),
        ({"rules": "r:1:f(x,y) -> h(x,z)"}, r"rules.txt line 1: has the head variable z"),
        ({"rules": "r:1:f(x,berlin) -> h(x,x)"}, r"rules.txt line 1: has the constant 'berlin'"),
        ({"rules": "f(x,y) -> h(x,y)"}, r"rules.txt line 1: is not of the form id:weight"),
        ({"rules": "r:1: -> h(x,y)"}, r"rules.txt line 1: has an empty body or head: 'r:1: -> h\(x,y\)'$"),
        ({"rules": "r:f(x,y) -> h(x,y)"}, r"rules.txt line 1: is not of the form id:weight:body -> head:"),
        ({"rules": "r:1:f(x,y) -> h(x,y), g(x,y)"}, r"line 1: needs exactly one atom in its head:"),
        ({"rules": "r:1:f(x,y), f x -> h(x,y)"}, r"line 1: cannot be read at ' f x': 'r:1:f\(x,y\), f x ->"),
        ({"rules": "r:1:f(x,y,z) -> h(x,y)"}, r"has an atom with 3 arguments and workload.arity=2:"),
        ({"train": "(a,b)."}, r"train.txt line 1: is not of the form relation\(a,b\)"),
        ({"train": "f(a,)."}, r"train.txt line 1: has an empty argument:"),
        ({"domain2constants": "people\n"}, r"line 1: names a domain without constants: 'people'$"),
        ({"rules": "\n"}, r"rules.txt holds no rule"),
        ({"rules": "r:1:f(x) -> h(x,x)"}, r"relation f has 2 arguments in one place and 1"),
        (
            {"domain2constants": "people a b\npeople c\n"},
            r"domain2constants.txt line 2: names a domain for the second time",
        ),
        (
            {"domain2constants": "people a b\nplaces c b\n"},
            r"domain2constants.txt line 2: puts b into a second domain; it is in people: 'places c b'",
        ),
    ],
)
def test_a_mistake_is_named_by_file_line_and_text(write, changed, says):
    with pytest.raises(ConfigError, match=says):
        read_problem(write(**changed))


@pytest.mark.parametrize(
    ("term", "changed"),
    [
        ("Paris", {"train": "f(bob,Paris).\nh(zoe,c)."}),
        ("Paris", {"domain2constants": "people a b c\nplaces Paris\n"}),
        ("a", {}),
    ],
)
def test_a_term_of_a_rule_that_is_a_constant_too_is_refused_by_name(write, term, changed):
    rule = f"r:1:f(x,{term}) -> h(x,{term})"
    says = rf"rules\.txt line 2: has the term '{term}', which is a constant of the data too, .* rename it"
    with pytest.raises(ConfigError, match=says):
        read_problem(write(rules=f"r0:1:f(x,y) -> h(x,y)\n{rule}", **{"test": "h(c,c)", **changed}))


def test_a_rule_made_in_python_is_refused_for_the_same_reason(problem):
    with pytest.raises(ConfigError, match="has the term 'Paris', which is a constant of the data too"):
        problem("lives(bob,Paris)", "french(X,Paris) <- lives(X,Paris)")


def test_a_missing_file_or_folder_is_named(write, tmp_path):
    folder = write()
    (folder / "rules.txt").unlink()
    with pytest.raises(ConfigError, match=r"rules.txt is missing"):
        read_problem(folder)
    with pytest.raises(ConfigError, match="is no folder"):
        read_problem(tmp_path / "nowhere")


def test_a_mark_of_byte_order_is_no_part_of_a_name(write):
    folder = write()
    (folder / "train.txt").write_text(GOOD["train.txt"], encoding="utf-8-sig")
    assert read_problem(folder).facts == read_problem(write()).facts


def test_a_folder_in_place_of_a_file_is_named(write):
    folder = write()
    (folder / "valid.txt").mkdir()
    with pytest.raises(ConfigError, match=r"valid\.txt cannot be read: Is a directory"):
        read_problem(folder)


def test_arguments_are_as_many_as_the_configuration_says(write):
    problem = read_problem(
        write(train="f(a,b,c).\nu(a).", test="f(a,b,c)", rules="r:1:f(x,y,z) -> f(y,x,z)"), arity=3
    )
    assert KnowledgeBase.build(problem, 3).facts.shape == (2, 4)
