"""Names, keys and indices of a small knowledge base, written out."""

from __future__ import annotations

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data import knowledge as encoding
from perfsweep.workloads.prover.data.knowledge import ATOMS, KnowledgeBase, Vocabulary

FACTS = "q(b,a) p(a,b) p(a,c) p(b,a) p(a,b)"
RULES = "q(X,Y) <- p(Y,Z), q(Z,X)\np(A,B) <- q(A,B)\nq(X,X) <- p(X,X)"
WRITTEN = {
    "facts": [[1, 1, 2], [1, 1, 3], [1, 2, 1], [2, 2, 1]],
    "fact_keys": [(1 * 17 + 1) * 17 + 2, (1 * 17 + 1) * 17 + 3, (1 * 17 + 2) * 17 + 1, (2 * 17 + 2) * 17 + 1],
    "swapped": [2, 0, 1, 3],
    "swapped_keys": [(1 * 17 + 1) * 17 + 2, (1 * 17 + 2) * 17 + 1, (17 + 3) * 17 + 1, (2 * 17 + 1) * 17 + 2],
    "fact_start": [0, 0, 3, 4, 4, 4],
    "fact_count": [0, 3, 1, 0, 0, 0],
    "heads": [[1, 1, 2], [2, 1, 2], [2, 1, 1]],
    "bodies": [[[2, 1, 2], [0, 0, 0]], [[1, 2, 3], [2, 3, 1]], [[1, 1, 1], [0, 0, 0]]],
    "body_length": [1, 2, 1],
    "rule_start": [0, 0, 1, 3, 3, 3],
    "rule_count": [0, 1, 2, 0, 0, 0],
    "domain": [0, 1, 2, 0, 1],
    "known": [308, 309, 324, 341, 613],
}
SIZES = ("largest_predicate", "largest_group", "rule_variables", "longest_body", "raw_atoms", "largest_id")


@pytest.fixture
def kb(problem) -> KnowledgeBase:
    return KnowledgeBase.build(problem(FACTS, RULES, "p(c,a)", domains={"d": ("a", "d"), "e": ("b",)}))


def test_facts_rules_and_domains_are_encoded_as_written_out(kb: KnowledgeBase, problem) -> None:
    names = kb.vocabulary
    assert (names.predicates, names.constants) == (("p", "q"), ("a", "b", "c", "d"))
    assert (names.true, names.variables, names.base) == (3, 2 * 6, 4 + 2 * 6 + 1)
    assert {name: getattr(kb, name).tolist() for name in WRITTEN} == WRITTEN
    assert [getattr(kb, name) for name in SIZES] == [3, 2, 3, 2, ATOMS + 1, 17 + 3]
    three, (rule, _, _) = Vocabulary(("p", "q"), ("a",), arity=3), problem(FACTS, RULES).rules
    atoms = (three.encode(("p", "a")), *encoding.encode_rule(rule, three))
    assert atoms == ((1, 1, 0, 0), (2, 1, 2, 0), [(1, 2, 3, 0), (2, 3, 1, 0)])
    unseen = KnowledgeBase.build(problem("p(a,b)", "p(X,Y) <- p(Y,X)", "p(a,z) r(a,b)"))
    assert len(unseen.known) == 1  # what names nothing that is known cannot be drawn


@pytest.mark.parametrize("changed", [(FACTS + " p(c,c)", RULES), (FACTS, RULES + "\np(A,B) <- p(B,A)")])
def test_other_facts_or_rules_have_another_digest(
    kb: KnowledgeBase, problem, changed: tuple[str, str]
) -> None:
    other = KnowledgeBase.build(problem(*changed, "p(c,a)", domains={"d": ("a", "d"), "e": ("b",)}))
    assert other.digest() != kb.digest()


def test_keys_of_64_bits_hold_what_is_below_their_base() -> None:
    def refuse(base: int) -> None:
        encoding._refuse_wide_keys(Vocabulary(("p",), ("c",) * (base - 1 - 4 * ATOMS), 4), 4)

    most = 36_853  # 5 times its fourth power is below 2^63, and not that of the next number
    assert 5 * most**4 < 2**63 <= 5 * (most + 1) ** 4
    refuse(most)
    said = "^36829 constants in relations of 4 arguments do not fit keys of 64 bits; lower workload.arity or"
    with pytest.raises(ConfigError, match=said):
        refuse(most + 1)
