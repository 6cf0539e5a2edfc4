"""Names, keys and indices of a small knowledge base, written out."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.knowledge import (
    ATOMS,
    KnowledgeBase,
    Vocabulary,
    _refuse_wide_keys,
    encode_rule,
    key_of,
)

FACTS = "q(b,a) p(a,b) p(a,c) p(b,a) p(a,b)"
RULES = "q(X,Y) <- p(Y,Z), q(Z,X)\np(A,B) <- q(A,B)\nq(X,X) <- p(X,X)"


@pytest.fixture
def kb(problem) -> KnowledgeBase:
    return KnowledgeBase.build(problem(FACTS, RULES, "p(c,a)", domains={"d": ("a", "d"), "e": ("b",)}))


def test_ids_count_from_one_in_the_order_of_names(kb: KnowledgeBase) -> None:
    names = kb.vocabulary
    assert names.predicate_ids == {"p": 1, "q": 2}
    assert names.constant_ids == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert (names.true, names.variables, names.base) == (3, 2 * ATOMS, 4 + 2 * ATOMS + 1)
    assert names.encode(("q", "b", "a")) == (2, 2, 1)
    assert Vocabulary(("p",), ("a",), arity=3).encode(("p", "a")) == (1, 1, 0, 0)


def test_facts_are_sorted_once_by_each_argument(kb: KnowledgeBase) -> None:
    assert kb.facts.tolist() == [[1, 1, 2], [1, 1, 3], [1, 2, 1], [2, 2, 1]]
    assert kb.facts[kb.swapped].tolist() == [[1, 2, 1], [1, 1, 2], [1, 1, 3], [2, 2, 1]]
    assert kb.fact_keys.tolist() == sorted(kb.fact_keys.tolist())
    assert kb.swapped_keys.tolist() == sorted(kb.swapped_keys.tolist())
    assert kb.fact_start.tolist()[:3] == [0, 0, 3]
    assert kb.fact_count.tolist()[:3] == [0, 3, 1]
    assert len(kb.fact_count) == kb.vocabulary.true + 3
    assert (kb.largest_predicate, kb.largest_group, kb.rule_variables) == (3, 2, 3)


def test_rules_are_grouped_by_head_and_padded_to_the_longest_body(kb: KnowledgeBase) -> None:
    assert kb.heads.tolist() == [[1, 1, 2], [2, 1, 2], [2, 1, 1]]
    assert kb.bodies.tolist() == [[[2, 1, 2], [0, 0, 0]], [[1, 2, 3], [2, 3, 1]], [[1, 1, 1], [0, 0, 0]]]
    assert kb.body_length.tolist() == [1, 2, 1]
    assert kb.rule_start.tolist()[1:3] == [0, 1]
    assert kb.rule_count.tolist()[1:3] == [1, 2]
    assert (kb.longest_body, kb.raw_atoms) == (2, ATOMS + 1)
    assert kb.largest_id == kb.vocabulary.base + 3


def test_variables_are_numbered_by_their_appearance(problem) -> None:
    (rule,) = problem("p(a,b)", "p(X,Y) <- p(Z,Y)").rules
    assert encode_rule(rule, Vocabulary(("p",), ("a", "b"), 3)) == ((1, 1, 2, 0), [(1, 3, 2, 0)])


def test_domains_and_what_is_known_to_be_true(kb: KnowledgeBase, problem) -> None:
    assert kb.domain.tolist() == [0, 1, 2, 0, 1]
    known = {(1, 1, 2), (1, 1, 3), (1, 2, 1), (2, 2, 1), (1, 3, 1)}
    assert set(kb.known.tolist()) == {int(kb.key(torch.tensor(atom))) for atom in known}
    unseen = KnowledgeBase.build(problem("p(a,b)", "p(X,Y) <- p(Y,X)", "p(a,z) r(a,b)"))
    assert len(unseen.known) == 1


def test_keys_sort_as_atoms_do() -> None:
    assert key_of(torch.tensor([[1, 2, 3], [0, 0, 9]]), 10).tolist() == [123, 9]


@pytest.mark.parametrize("changed", [(FACTS + " p(c,c)", RULES), (FACTS, RULES + "\np(A,B) <- p(B,A)")])
def test_other_facts_or_rules_have_another_digest(
    kb: KnowledgeBase, problem, changed: tuple[str, str]
) -> None:
    other = KnowledgeBase.build(problem(*changed, "p(c,a)", domains={"d": ("a", "d"), "e": ("b",)}))
    assert other.digest() != kb.digest()


def test_keys_of_64_bits_hold_what_is_below_their_base() -> None:
    arity = 4
    most = int((2**63 / 7) ** (1 / arity))  # one predicate: ids of keys go up to 2 + 3 + 1 + 1
    fits = Vocabulary(("p",), ("c",) * (most - 1 - ATOMS * arity), arity)
    assert (fits.true + 3) * fits.base**arity < 2**63
    _refuse_wide_keys(fits, arity)
    wide = Vocabulary(("p",), ("c",) * (len(fits.constants) + 5000), arity)
    assert (wide.true + 3) * wide.base**arity >= 2**63
    with pytest.raises(ConfigError, match="constants in relations of 4 arguments do not fit keys"):
        _refuse_wide_keys(wide, arity)
