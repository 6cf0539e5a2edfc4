"""A knowledge base as tensors: sorted facts, rules grouped by head, keys and indices.

Ids. Predicates: 0 padding, 1..P sorted names, then TRUE, FALSE and END. Terms: 0 padding, 1..C sorted
constants, then V = r A variables. An atom is a row (predicate, arguments), 1 + r wide; states are [A, 1+r],
left aligned, zero padded.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.prover.data.formats import STATE_ATOMS, Problem, Rule, Triple

ATOMS = STATE_ATOMS
SUCCESSORS = 120
"""S: actions of a state, END included."""
MAX_DEPTH = 20
PREDICATE_RULES = 100
"""What rules are padded to in the naive path."""


@dataclass(frozen=True)
class Vocabulary:
    """Names and their ids.

    Attributes
    ----------
    predicates, constants : sorted names; ids count from 1
    arity : largest number of arguments, r
    """

    predicates: tuple[str, ...]
    constants: tuple[str, ...]
    arity: int = 2

    @cached_property
    def predicate_ids(self) -> dict[str, int]:
        """Ids by name."""
        return {name: number for number, name in enumerate(self.predicates, 1)}

    @cached_property
    def constant_ids(self) -> dict[str, int]:
        """Ids by name."""
        return {name: number for number, name in enumerate(self.constants, 1)}

    @property
    def true(self) -> int:
        """Id of TRUE; FALSE and END follow."""
        return len(self.predicates) + 1

    @property
    def variables(self) -> int:
        """Names that variables of a state can have."""
        return self.arity * ATOMS

    @property
    def base(self) -> int:
        """One more than the largest term of a canonical state; the base of keys and hashes."""
        return len(self.constants) + self.variables + 1

    def encode(self, triple: Triple) -> tuple[int, ...]:
        """A ground atom as ids, missing arguments zero."""
        terms = [self.constant_ids[name] for name in triple[1:]]
        return (self.predicate_ids[triple[0]], *terms, *[0] * (self.arity - len(terms)))

    @classmethod
    def of(cls, problem: Problem, arity: int = 2) -> Vocabulary:
        """The vocabulary of a problem.

        Raises
        ------
        ConfigError
            An atom has more arguments, or atoms do not fit 64-bit keys.
        """
        found = cls(problem.predicates, problem.constants, arity)
        if problem.arity > arity:
            raise ConfigError(
                f"arity={arity}: an atom of the data has {problem.arity} arguments; use arity={problem.arity}"
            )
        _refuse_wide_keys(found, arity)
        return found


def encode_rule(rule: Rule, vocabulary: Vocabulary) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Head and body with variables numbered from 1, those of the head first, missing arguments zero."""
    numbers = {name: number for number, name in enumerate(rule.variables, 1)}
    atoms = []
    for atom in rule.atoms:
        terms = [numbers[name] for name in atom[1:]]
        atoms.append((vocabulary.predicate_ids[atom[0]], *terms, *[0] * (vocabulary.arity - len(terms))))
    return atoms[0], atoms[1:]


@dataclass(frozen=True)
class KnowledgeBase:
    """Facts and rules of one vocabulary on one device. All id tensors are int64 here; paths narrow them.

    Attributes
    ----------
    facts : [F, 1+r] ascending by (predicate, arguments)
    fact_keys : [F] ascending
    swapped : [F] fact numbers ascending by (predicate, second argument, first argument)
    swapped_keys : [F] keys in that order, ascending
    fact_start, fact_count : [P+4] first fact and number of facts by predicate
    heads : [R, 1+r] grouped by predicate, stably; variables numbered from 1 in each rule
    bodies : [R, Bmax, 1+r]
    body_length : [R]
    rule_start, rule_count : [P+4]
    domain : [C+1] number of the domain of an entity, 0 where none is given
    known : [K] ascending keys of train, valid and test, which corruptions must not repeat
    """

    vocabulary: Vocabulary
    facts: Tensor
    fact_keys: Tensor
    swapped: Tensor
    swapped_keys: Tensor
    fact_start: Tensor
    fact_count: Tensor
    heads: Tensor
    bodies: Tensor
    body_length: Tensor
    rule_start: Tensor
    rule_count: Tensor
    domain: Tensor
    known: Tensor
    largest_predicate: int
    largest_group: int
    rule_variables: int

    @property
    def longest_body(self) -> int:
        """Bmax."""
        return self.bodies.shape[1]

    @property
    def raw_atoms(self) -> int:
        """Atoms that a successor has at most before pruning."""
        return ATOMS + self.longest_body - 1

    @property
    def largest_id(self) -> int:
        """The largest id that packing meets: variables fresh from a rule have larger ids than those of a
        state.
        """
        vocabulary = self.vocabulary
        return max(vocabulary.base + self.rule_variables, vocabulary.true + 2)

    def key(self, atoms: Tensor) -> Tensor:
        """Atoms [..., 1+r] as numbers that sort like them."""
        return key_of(atoms, self.vocabulary.base)

    def digest(self) -> str:
        """SHA-256 over names, facts and rules."""
        sha = hashlib.sha256(
            "\n".join((*self.vocabulary.predicates, "", *self.vocabulary.constants)).encode()
        )
        for tensor in (self.facts, self.heads, self.bodies, self.domain, self.known):
            sha.update(tensor.cpu().numpy().tobytes())
        return sha.hexdigest()[:16]

    @classmethod
    def build(cls, problem: Problem, arity: int = 2, device: str = "cpu") -> KnowledgeBase:
        """Encode and index a problem.

        Raises
        ------
        ConfigError
            An atom has more arguments, or atoms do not fit 64-bit keys.
        """
        vocabulary = Vocabulary.of(problem, arity)
        facts, rules = _fact_index(problem, vocabulary, arity), _rule_index(problem, vocabulary)
        asked = {"domain": _domains(problem, vocabulary), "known": _known(problem, vocabulary)}
        return cls(
            vocabulary,
            **{name: tensor.to(device) for name, tensor in (facts | rules | asked).items()},
            largest_predicate=int(facts["fact_count"].max()),
            largest_group=int(rules["rule_count"].max()),
            rule_variables=int(max(rules["bodies"][..., 1:].max(), rules["heads"][..., 1:].max())),
        )


def _refuse_wide_keys(vocabulary: Vocabulary, arity: int) -> None:
    if (vocabulary.true + 3) * vocabulary.base**arity >= 2**63:
        raise ConfigError(
            f"{len(vocabulary.constants)} constants in relations of {arity} arguments do not fit keys of"
            " 64 bits; lower workload.arity or leave constants out"
        )


def _fact_index(problem: Problem, vocabulary: Vocabulary, arity: int) -> dict[str, Tensor]:
    """Facts in two orders, by the first and by the second argument, with the range of each predicate."""
    encoded = sorted({vocabulary.encode(fact) for fact in problem.facts})
    facts = torch.tensor(encoded, dtype=torch.int64).view(-1, 1 + arity)
    swapped_order = sorted(range(len(encoded)), key=lambda number: _swapped(encoded[number]))
    swapped = torch.tensor(swapped_order, dtype=torch.int64)
    start, count = _segments(facts[:, 0], vocabulary)
    return {
        "facts": facts,
        "fact_keys": key_of(facts, vocabulary.base),
        "swapped": swapped,
        "swapped_keys": key_of(facts[swapped][:, [0, *_swapped_columns(arity)]], vocabulary.base),
        "fact_start": start,
        "fact_count": count,
    }


def _rule_index(problem: Problem, vocabulary: Vocabulary) -> dict[str, Tensor]:
    heads, bodies, lengths = _rules(problem, vocabulary)
    start, count = _segments(heads[:, 0], vocabulary)
    return {
        "heads": heads,
        "bodies": bodies,
        "body_length": lengths,
        "rule_start": start,
        "rule_count": count,
    }


def key_of(atoms: Tensor, base: int) -> Tensor:
    """(p base + a0) base + a1 ...: [..., 1+r] to [...]."""
    key = atoms[..., 0].to(torch.int64)
    for place in range(1, atoms.shape[-1]):
        key = key * base + atoms[..., place]
    return key


def _swapped_columns(arity: int) -> list[int]:
    return [2, 1, *range(3, arity + 1)] if arity > 1 else [1]


def _swapped(atom: tuple[int, ...]) -> tuple[int, ...]:
    return (atom[0], *(atom[column] for column in _swapped_columns(len(atom) - 1)))


def _segments(predicates: Tensor, vocabulary: Vocabulary) -> tuple[Tensor, Tensor]:
    count = torch.bincount(predicates, minlength=vocabulary.true + 3)
    return count.cumsum(0) - count, count


def _rules(problem: Problem, vocabulary: Vocabulary) -> tuple[Tensor, Tensor, Tensor]:
    encoded = sorted((encode_rule(rule, vocabulary) for rule in problem.rules), key=lambda rule: rule[0][0])
    longest = max(len(body) for _, body in encoded)
    empty = (0,) * (1 + vocabulary.arity)
    bodies = [[*body, *[empty] * (longest - len(body))] for _, body in encoded]
    lengths = [len(body) for _, body in encoded]
    return torch.tensor([head for head, _ in encoded]), torch.tensor(bodies), torch.tensor(lengths)


def _domains(problem: Problem, vocabulary: Vocabulary) -> Tensor:
    domain = torch.zeros(len(vocabulary.constants) + 1, dtype=torch.int64)
    for number, entities in enumerate(problem.domains.values(), 1):
        for name in entities:
            domain[vocabulary.constant_ids[name]] = number
    return domain


def _known(problem: Problem, vocabulary: Vocabulary) -> Tensor:
    """Keys of everything true that vocabulary can say; validation may name what training never saw."""
    sayable = []
    for triple in (*problem.facts, *problem.valid, *problem.test):
        if triple[0] in vocabulary.predicate_ids and all(
            name in vocabulary.constant_ids for name in triple[1:]
        ):
            sayable.append(vocabulary.encode(triple))
    return torch.unique(key_of(torch.tensor(sayable), vocabulary.base))


ROOM = 16
"""Slots of the table per fact: few collisions, few probes."""
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xC2B2AE3D27D4EB4F, 0xA0761D6478BD642F)


class FactSet:
    """The set of fact keys. The slot of a key is the top bits of its product with an odd number."""

    def __init__(self, kb: KnowledgeBase) -> None:
        keys = kb.fact_keys.cpu().numpy()
        self.bits = max(4, int(np.ceil(np.log2(ROOM * max(1, keys.size)))))
        built = [self._table(keys, multiplier) for multiplier in MULTIPLIERS]
        table, self.probes, multiplier = min(built, key=lambda found: found[1])
        self.multiplier = multiplier - 2**64 if multiplier >= 2**63 else multiplier
        self.table = torch.from_numpy(table).to(kb.fact_keys.device)

    def _table(self, keys: np.ndarray, multiplier: int) -> tuple[np.ndarray, int, int]:
        table = np.full(2**self.bits, -1, dtype=np.int64)
        products = keys.astype(np.uint64) * np.uint64(multiplier)  # wraps around
        slots = (products >> np.uint64(64 - self.bits)).astype(np.int64)
        waiting, probe = np.arange(keys.size), 0
        while waiting.size:
            at = (slots[waiting] + probe) & (2**self.bits - 1)
            empty = table[at] == -1
            table[at[empty]] = keys[waiting[empty]]  # of several keys for one slot the last stays
            waiting = waiting[table[at] != keys[waiting]]
            probe += 1
        return table, max(probe, 1), multiplier

    def holds(self, keys: Tensor) -> Tensor:
        """Whether each key is a fact's."""
        mask = 2**self.bits - 1
        slot = ((keys * self.multiplier) >> (64 - self.bits)) & mask
        found = self.table[slot] == keys
        for probe in range(1, self.probes):
            found = found | (self.table[(slot + probe) & mask] == keys)
        return found
