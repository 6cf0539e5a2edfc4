"""Names, keys and indices of a small knowledge base, written out."""

from __future__ import annotations

import pytest

from perfsweep.workloads.prover.data.knowledge import KnowledgeBase

FACTS = "q(b,a) p(a,b) p(a,c) p(b,a) p(a,b)"
RULES = "q(X,Y) <- p(Y,Z), q(Z,X)\np(A,B) <- q(A,B)\nq(X,X) <- p(X,X)"


@pytest.fixture
def kb(problem) -> KnowledgeBase:
    return KnowledgeBase.build(problem(FACTS, RULES, "p(c,a)", domains={"d": ("a", "d"), "e": ("b",)}))


@pytest.mark.parametrize("changed", [(FACTS + " p(c,c)", RULES), (FACTS, RULES + "\np(A,B) <- p(B,A)")])
def test_other_facts_or_rules_have_another_digest(
    kb: KnowledgeBase, problem, changed: tuple[str, str]
) -> None:
    other = KnowledgeBase.build(problem(*changed, "p(c,a)", domains={"d": ("a", "d"), "e": ("b",)}))
    assert other.digest() != kb.digest()
