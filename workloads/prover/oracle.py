"""An independent judge: first-goal resolution on sets and tuples, float64 policy, ranks, corruptions.

Nothing of the implementation is imported. Atoms are tuples (predicate, arguments ...) of the same ids:
constants 1..C, variables above. Rules have variables numbered from 1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Atom = tuple[int, ...]
State = tuple[Atom, ...]
Clause = tuple[Atom, tuple[Atom, ...]]

MASK = 2**64 - 1
TAU = 1e-2
AMBIGUOUS = 2e-6
TABLES = ("P", "U", "V", "V2", "V3")
"""Weights of the columns of an atom."""


def mix(x: int) -> int:
    """One SplitMix64 step, modulo 2^64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


@dataclass
class Resolver:
    """Facts and rules, and everything a step does, without tensors."""

    facts: Iterable[Atom]
    rules: Sequence[Clause]
    constants: int
    predicates: int
    atoms: int = 6
    actions: int = 120
    max_depth: int = 20
    arity: int = 2
    by_predicate: dict[int, list[Atom]] = field(init=False, repr=False)
    bound: dict[tuple[int, int, int], list[Atom]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.known = set(self.facts)
        self.by_predicate, self.bound = defaultdict(list), defaultdict(list)
        for fact in sorted(self.known):
            self.by_predicate[fact[0]].append(fact)
            for place, term in enumerate(fact[1:], 1):
                self.bound[fact[0], place, term].append(fact)
        self.heads = defaultdict(list)
        for rule in self.rules:
            self.heads[rule[0][0]].append(rule)
        self.true, self.false, self.end = (((self.predicates + 1 + i, *[0] * self.arity),) for i in range(3))

    def is_variable(self, term: int) -> bool:
        return term > self.constants

    def unify(self, goal: Atom, head: Atom) -> dict[int, int] | None:
        """The most general unifier of two flat atoms, variables resolved all the way; None without one."""
        bound: dict[int, int] = {}

        def walk(term: int) -> int:
            while term in bound:
                term = bound[term]
            return term

        for a, b in zip(goal[1:], head[1:], strict=True):
            a, b = walk(a), walk(b)
            if a == b:
                continue
            if self.is_variable(b):
                bound[b] = a
            elif self.is_variable(a):
                bound[a] = b
            else:
                return None
        return {term: walk(term) for term in bound}

    def resolvents(self, state: State, query: Atom) -> list[State]:
        """Raw successors in order: rules as in the file, then facts ascending."""
        goal, rest = state[0], state[1:]
        found = []
        for head, body in self.heads[goal[0]]:
            fresh = [tuple(self._fresh(term) for term in atom[1:]) for atom in (head, *body)]
            sigma = self.unify(goal, (head[0], *fresh[0]))
            if sigma is not None:
                renamed = tuple((atom[0], *terms) for atom, terms in zip(body, fresh[1:], strict=True))
                found.append(self._apply(sigma, renamed + rest))
        for fact in self._candidates(goal):
            sigma = self.unify(goal, fact) if fact != query else None
            if sigma is not None:
                found.append(self._apply(sigma, rest))
        return found

    def _fresh(self, variable: int) -> int:
        return variable + self.constants + 1000 if variable else 0

    def _candidates(self, goal: Atom) -> list[Atom]:
        for place, term in enumerate(goal[1:], 1):
            if not self.is_variable(term):
                return self.bound.get((goal[0], place, term), [])
        return self.by_predicate.get(goal[0], [])

    @staticmethod
    def _apply(sigma: Mapping[int, int], atoms: Sequence[Atom]) -> State:
        return tuple((atom[0], *(sigma.get(term, term) for term in atom[1:])) for atom in atoms)

    def pruned(self, state: State, query: Atom) -> State:
        """Without the ground atoms that are facts, the query not being one."""
        return tuple(atom for atom in state if atom not in self.known or atom == query)

    def canonical(self, state: State) -> State:
        """Variables renamed by first appearance."""
        names: dict[int, int] = {}
        return tuple(
            (
                atom[0],
                *(
                    names.setdefault(t, self.constants + 1 + len(names)) if self.is_variable(t) else t
                    for t in atom[1:]
                ),
            )
            for atom in state
        )

    def hash(self, state: State) -> int:
        """64-bit, order dependent."""
        base, h = self.constants + self.arity * self.atoms + 1, 0
        for atom in state:
            key = 0
            for number in atom:
                key = key * base + number
            h = mix(h ^ (key & MASK))
        return h

    def successors(self, state: State, query: Atom, history: Iterable[int]) -> tuple[list[State], bool]:
        """The list of actions, and whether the cap cut something."""
        pruned = [self.pruned(raw, query) for raw in self.resolvents(state, query)]
        if not all(pruned):
            return [self.true], False
        kept = [raw for raw in pruned if len(raw) <= self.atoms]
        cut = len(kept) > self.actions - 1
        lists: dict[int, State] = {}
        for raw in kept[: self.actions - 1]:
            new = self.canonical(raw)
            lists.setdefault(self.hash(new), new)
        seen = set(history)
        left = [new for h, new in lists.items() if h not in seen]
        return ([*left, self.end] if left else [self.false]), cut

    def shortest(self, query: Atom, limit: int | None = None, nodes: int = 200_000) -> int | None:
        """Actions of the shortest proof by breadth-first search without cap, the forced TRUE included.

        None: no proof within `limit` actions (default: max_depth) or `nodes` states.
        """
        path = self.shortest_path(query, limit, nodes)
        return None if path is None else len(path)

    def shortest_path(
        self, query: Atom, limit: int | None = None, nodes: int = 200_000
    ) -> list[State] | None:
        """The states from [query] to the last before TRUE on a shortest proof."""
        start: State = (query,)
        parents: dict[State, State | None] = {start: None}
        layer = [start]
        for _ in range(limit or self.max_depth):
            following = []
            for state in layer:
                for raw in self.resolvents(state, query):
                    new = self.canonical(self.pruned(raw, query))
                    if not new:
                        return self._path(parents, state)
                    if len(new) <= self.atoms and new not in parents:
                        parents[new] = state
                        following.append(new)
                if len(parents) > nodes:
                    return None
            layer = following
        return None

    @staticmethod
    def _path(parents: Mapping[State, State | None], state: State | None) -> list[State]:
        path = []
        while state is not None:
            path.append(state)
            state = parents[state]
        return path[::-1]


@dataclass
class Scorer:
    """The policy in float64 from weights by name: TABLES; trunk.I.weight/bias/scale/shift; hidden, out."""

    weights: Mapping[str, np.ndarray]
    layers: int
    decay: float = 0.5

    def value(self, state: State) -> np.ndarray:
        """v [E] of a state."""
        w = self.weights
        x = sum(
            self.decay**slot * sum(w[table][row] for table, row in zip(TABLES, atom, strict=False))
            for slot, atom in enumerate(state)
        )
        for layer in range(self.layers + 1):
            new = self._normed(
                np.maximum(w[f"trunk.{layer}.weight"] @ x + w[f"trunk.{layer}.bias"], 0), layer
            )
            x = new if layer == 0 else x + new
        hidden = np.maximum(w["hidden.weight"] @ x + w["hidden.bias"], 0)
        return w["out.weight"] @ hidden + w["out.bias"]

    def _normed(self, x: np.ndarray, layer: int) -> np.ndarray:
        x = x - x.mean()
        x = x / np.sqrt((x * x).mean() + 1e-5)
        return x * self.weights[f"trunk.{layer}.scale"] + self.weights[f"trunk.{layer}.shift"]

    def logits(self, state: State, actions: Sequence[State]) -> np.ndarray:
        """One logit per action."""
        current = self.value(state)
        return np.array([current @ self.value(action) for action in actions]) / math.sqrt(len(current))


def choose(logits: Sequence[float], tau: float = TAU) -> tuple[int, float, bool]:
    """Action, log-probability, and whether rounding could change it: all within tau of the best are best."""
    top = max(logits)
    near = [logit >= top - tau for logit in logits]
    snapped = [top if snap else logit for logit, snap in zip(logits, near, strict=True)]
    log_p = -math.log(sum(math.exp(logit - top) for logit in snapped))
    doubt = any(abs((top - logit) - tau) < AMBIGUOUS * (1 + abs(top)) for logit in logits)
    return near.index(True), log_p, doubt


@dataclass(frozen=True)
class Episode:
    """What became of one query."""

    success: bool
    depth: int
    actions: tuple[int, ...]
    log_prob: float
    ambiguous: bool
    overflow: int
    states: tuple[State, ...]


def play(resolver: Resolver, scorer: Scorer, query: Atom) -> Episode:
    """Follow the policy from [query] to TRUE, FALSE, END or the last step."""
    state: State = (query,)
    history, actions = [resolver.hash(state)], []
    visited: list[State] = [state]
    log_prob, ambiguous, overflow = 0.0, False, 0
    while len(actions) < resolver.max_depth:
        choices, cut = resolver.successors(state, query, history)
        overflow += cut
        action = 0
        if len(choices) > 1:
            action, log_p, doubt = choose(list(scorer.logits(state, choices)))
            log_prob, ambiguous = log_prob + log_p, ambiguous or doubt
        actions.append(action)
        state = choices[action]
        if state in (resolver.true, resolver.false, resolver.end):
            break
        history.append(resolver.hash(state))
        visited.append(state)
    success = state == resolver.true
    return Episode(success, len(actions), tuple(actions), log_prob, ambiguous, overflow, tuple(visited))


def score(episode: Episode) -> float:
    """Log-probability, a hundred less without a proof."""
    return episode.log_prob - (0 if episode.success else 100)


def expected_rank(scores: Sequence[float], eps: float = 1e-3) -> float:
    """Rank of the first score; scores within eps share a place."""
    first, rest = scores[0], scores[1:]
    return 1 + sum(s > first + eps for s in rest) + 0.5 * sum(abs(s - first) <= eps for s in rest)


def corruptions(
    query: Atom,
    place: int,
    entities: Iterable[int],
    known: set[Atom],
    seed: int,
    base: int,
    count: int | None,
) -> list[Atom]:
    """The `count` eligible entities of smallest key for argument `place` (0 or 1), or all by id."""
    replaced = [
        (e, (*query[: place + 1], e, *query[place + 2 :])) for e in sorted(entities) if e != query[place + 1]
    ]
    eligible = [(e, atom) for e, atom in replaced if atom not in known]
    if count is None:
        return [atom for _, atom in eligible]
    key = 0
    for number in query:
        key = key * base + number
    start = mix(mix(seed & MASK) ^ place) ^ mix(key & MASK)
    ordered = sorted(eligible, key=lambda pair: mix(mix(start) ^ pair[0]))
    return [atom for _, atom in ordered[:count]]
