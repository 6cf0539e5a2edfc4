"""What can be derived at all: shortest proofs by exhaustive search, with no policy, no ids and no tensors.

SLD resolution (Kowalski, 1974) of the first goal by rules and then facts, breadth first over states that are
equal but for the names of their variables. An action is one resolution, with all goals dropped that are
facts then; the query itself counts as none, as in the walks of a policy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfsweep.workloads.prover.data.formats import Problem, Triple

Term = str | int | tuple[str]
"""A constant by name, a variable of a state by number, or a variable of a rule by name."""
Atom = tuple[Term, ...]
State = tuple[Atom, ...]


@dataclass(frozen=True)
class Derivation:
    """What an exhaustive search found of one query.

    Attributes
    ----------
    query : as ``relation(a,b)``
    depth : actions of a shortest proof, the last one included; None: no proof was found
    states : goals left after each action, the query first and TRUE last, as text; empty without a proof
    complete : whether all states within the limits of depth and goals were looked at, so that no proof within
        them was missed
    """

    query: str
    depth: int | None
    states: tuple[str, ...]
    complete: bool

    def __str__(self) -> str:
        return "\n".join(self.states)


class Search:
    """The facts and rules of a problem, ready to be searched.

    Parameters
    ----------
    depth : actions of a proof at most
    states : states that are looked at for one query at most
    atoms : goals of a state at most; None: any number
    """

    def __init__(self, kb: Problem, depth: int, states: int, atoms: int | None) -> None:
        self.depth, self.states, self.atoms = depth, states, atoms
        self.facts = set(kb.facts)
        self.holding: dict[tuple[int, Term], list[Atom]] = defaultdict(list)
        for fact in kb.facts:
            for place, name in enumerate(fact):
                self.holding[place, name].append(fact)
        self.rules: dict[Term, list[State]] = defaultdict(list)
        for rule in kb.rules:
            renamed = ((name, *((term,) for term in terms)) for name, *terms in rule.atoms)
            self.rules[rule.head[0]].append(tuple(renamed))

    def __call__(self, query: Triple) -> Derivation:
        """Search for a shortest proof."""
        before: dict[State, State | None] = {(query,): None}
        layer: list[State] = [(query,)]
        for depth in range(1, self.depth + 1):
            reached: list[State] = []
            for state in layer:
                for new in self._successors(state, query):
                    if not new:
                        return Derivation(_text(query), depth, _walk(before, state), True)
                    if new not in before and len(new) <= (self.atoms or len(new)):
                        before[new] = state
                        reached.append(new)
                if len(before) > self.states:
                    return Derivation(_text(query), None, (), False)
            layer = reached
        return Derivation(_text(query), None, (), True)

    def _successors(self, state: State, query: Triple) -> Iterator[State]:
        goal, *rest = state
        for head, *body in self.rules[goal[0]]:
            if (bound := _unifier(goal, head)) is not None:
                yield self._reduced((*body, *rest), bound, query)
        for fact in self._matching(goal):
            if fact != query and (bound := _unifier(goal, fact)) is not None:
                yield self._reduced(rest, bound, query)

    def _matching(self, goal: Atom) -> list[Atom]:
        """The facts that share the rarest name of a goal."""
        named = [(place, term) for place, term in enumerate(goal) if isinstance(term, str)]
        return min((self.holding.get(key, []) for key in named), key=len)

    def _reduced(self, goals: Sequence[Atom], bound: Mapping[Term, Term], query: Triple) -> State:
        """Goals under a substitution, without facts, variables numbered as they first appear."""
        numbers: dict[Term, Term] = {}
        left = []
        for name, *terms in goals:
            values = [_value(term, bound) for term in terms]
            atom = (name, *values)
            if atom == query or atom not in self.facts:
                left.append((name, *(v if isinstance(v, str) else _number(v, numbers) for v in values)))
        return tuple(left)


def _number(variable: Term, numbers: dict[Term, Term]) -> Term:
    return numbers.setdefault(variable, len(numbers) + 1)


def _unifier(goal: Atom, head: Atom) -> dict[Term, Term] | None:
    """The most general substitution that makes two atoms without functions equal; None: there is none."""
    if goal[0] != head[0] or len(goal) != len(head):
        return None
    bound: dict[Term, Term] = {}
    for one, other in zip(goal[1:], head[1:], strict=True):
        one, other = _value(one, bound), _value(other, bound)
        if isinstance(one, str) and isinstance(other, str):
            if one != other:
                return None
        elif one != other:
            variable, value = (other, one) if isinstance(one, str) else (one, other)
            bound[variable] = value
    return bound


def _value(term: Term, bound: Mapping[Term, Term]) -> Term:
    while term in bound:
        term = bound[term]
    return term


def _walk(before: Mapping[State, State | None], state: State | None) -> tuple[str, ...]:
    """The states from the query to `state`, and TRUE, as text."""
    texts = ["TRUE"]
    while state is not None:
        texts.append(", ".join(map(_text, state)))
        state = before[state]
    return tuple(reversed(texts))


def _text(atom: Atom) -> str:
    return f"{atom[0]}({','.join(term if isinstance(term, str) else f'X{term}' for term in atom[1:])})"
