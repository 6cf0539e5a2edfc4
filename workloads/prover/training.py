"""Training the policy to follow shortest proofs, so that its ranks mean something.

Proofs are the oracle's, of facts that are hidden from their own proof; the loss is the cross-entropy of the
next state among the actions. The result depends on data, weights and the number of passes alone, and is kept
on disk.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.prover.data.knowledge import ATOMS, KnowledgeBase
from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape, Weights, term_tables
from perfsweep.workloads.prover.oracle import Atom, Resolver, State

PROOFS = 256
LIMIT = 4
NODES = 2000
RATE = 1e-3

Lesson = tuple[State, list[State], int]
"""A state, its actions, and the action that a shortest proof takes."""


def lessons(resolver: Resolver, queries: list[Atom]) -> list[Lesson]:
    """What shortest proofs of `queries` teach; forced steps teach nothing."""
    found: list[Lesson] = []
    for query in queries:
        path = resolver.shortest_path(query, LIMIT, NODES) or []
        history: list[int] = []
        for state, after in itertools.pairwise(path):
            history.append(resolver.hash(state))
            actions, _ = resolver.successors(state, query, history)
            if after in actions:  # which TRUE or FALSE alone never have
                found.append((state, actions, actions.index(after)))
    return found


def trained(kb: KnowledgeBase, weights: Weights, shape: PolicyShape, passes: int, file: Path) -> Weights:
    """Weights after `passes` over the lessons, from `file` where they are known already."""
    if file.exists():
        return torch.load(file, weights_only=True)
    resolver = resolver_of(kb)
    facts = sorted(resolver.known)
    queries = random.Random("imitation").sample(facts, min(PROOFS, len(facts)))
    learned = _fit(lessons(resolver, queries), weights, shape, passes)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{random.getrandbits(60):x}.part")
    torch.save(learned, part)
    part.replace(file)
    return learned


def _fit(taught: list[Lesson], weights: Weights, shape: PolicyShape, passes: int) -> Weights:
    learned = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    optimizer = torch.optim.Adam(learned.values(), lr=RATE)
    order = list(range(len(taught)))
    for number in range(passes):
        random.Random(number).shuffle(order)
        for start in range(0, len(order), 16):
            optimizer.zero_grad()
            policy = Policy(learned, shape)
            losses = [_loss(policy, taught[place]) for place in order[start : start + 16]]
            torch.stack(losses).mean().backward()
            optimizer.step()
            _keep_padding_zero(learned)
    return {name: tensor.detach() for name, tensor in learned.items()}


def _loss(policy: Policy, lesson: Lesson) -> Tensor:
    state, actions, right = lesson
    values = policy.values(as_tensor([state, *actions]))
    keys, _ = policy.keys(values[:1])
    return F.cross_entropy((keys @ values[1:].T), torch.tensor([right]))


@torch.no_grad()
def _keep_padding_zero(weights: Weights) -> None:
    for name in ("P", *term_tables(weights)):
        weights[name][0] = 0


def as_tensor(states: list[State]) -> Tensor:
    """States as [N, A, 1+r]."""
    found = torch.zeros(len(states), ATOMS, len(states[0][0]), dtype=torch.int64)
    for number, state in enumerate(states):
        found[number, : len(state)] = torch.tensor(state)
    return found


def resolver_of(kb: KnowledgeBase) -> Resolver:
    """The oracle for the same facts and rules, from plain numbers."""
    rules = []
    for head, body, length in zip(
        kb.heads.tolist(), kb.bodies.tolist(), kb.body_length.tolist(), strict=True
    ):
        rules.append((tuple(head), tuple(tuple(atom) for atom in body[:length])))
    vocabulary = kb.vocabulary
    facts = [tuple(fact) for fact in kb.facts.tolist()]
    return Resolver(
        facts, rules, len(vocabulary.constants), len(vocabulary.predicates), arity=vocabulary.arity
    )
