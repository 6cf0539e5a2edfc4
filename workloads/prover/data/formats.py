"""Knowledge bases as files: triples, Horn rules, domains. Every mistake is named by file, line and text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perfsweep.workloads.errors import ConfigError

Triple = tuple[str, ...]
"""A relation and its arguments, by name."""

VARIABLE = re.compile(r"^[A-Za-z]$|^[A-Z][A-Za-z0-9_]*$")
"""A variable of a rule: one letter of either case, or a capitalised name."""

STATE_ATOMS = 6
"""A: atoms of a state; successors with more are dropped."""

SAY_CONSTANT = (
    "each term of a rule is a variable; rename it, or say the constant by a fact, as in"
    " 'lives(x,y), is_paris(y,y)'"
)

BODY_ATOM = re.compile(r"\s*([^\s(),]+)\(([^()]*)\)\s*(?:,|$)")


@dataclass(frozen=True)
class Line:
    """One line of a file, for messages."""

    file: Path
    number: int
    text: str

    def wrong(self, what: str) -> ConfigError:
        """The error that says what is wrong with this line."""
        return ConfigError(f"{self.file} line {self.number}: {what}: {self.text[:120]!r}")


@dataclass(frozen=True)
class Rule:
    """``head <- body``: atoms are a relation and variable names; `line` is where it was read."""

    head: Triple
    body: tuple[Triple, ...]
    line: Line | None = field(default=None, compare=False, repr=False)

    @property
    def atoms(self) -> tuple[Triple, ...]:
        """The head, and then the body."""
        return (self.head, *self.body)

    @property
    def variables(self) -> dict[str, None]:
        """Names of its terms, in the order of the text of `atoms`."""
        return dict.fromkeys(term for atom in self.atoms for term in atom[1:])

    def wrong(self, what: str) -> ConfigError:
        """The error that says what is wrong with this rule."""
        return self.line.wrong(what) if self.line else ConfigError(f"{self}: {what}")


@dataclass(frozen=True)
class Problem:
    """What the files of a folder say, names as written.

    Attributes
    ----------
    facts, valid, test : triples; facts without repetition, in file order
    rules : in file order
    domains : entities by domain; empty where there is no such file
    repeated : facts that were written more than once
    """

    facts: tuple[Triple, ...]
    valid: tuple[Triple, ...]
    test: tuple[Triple, ...]
    rules: tuple[Rule, ...]
    domains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    repeated: int = 0

    def __post_init__(self) -> None:
        """Refuse rules whose terms are constants as well.

        Raises
        ------
        ConfigError
            A rule has no body, or a term that facts, other triples or domains name; the message names both.
        """
        triples = (*self.facts, *self.valid, *self.test)
        constants = {name for triple in triples for name in triple[1:]}.union(*self.domains.values())
        for rule in self.rules:
            if not rule.body:
                raise rule.wrong("has an empty body; write what always holds as facts")
            if meant := [term for term in rule.variables if term in constants]:
                raise rule.wrong(
                    f"has the term {meant[0]!r}, which is a constant of the data too, and {SAY_CONSTANT}"
                )

    @property
    def predicates(self) -> tuple[str, ...]:
        """Sorted names of relations in facts and rules."""
        named = {fact[0] for fact in self.facts}
        return tuple(sorted(named | {atom[0] for rule in self.rules for atom in rule.atoms}))

    @property
    def constants(self) -> tuple[str, ...]:
        """Sorted names of entities in facts and domains."""
        named = {name for fact in self.facts for name in fact[1:]}
        return tuple(sorted(named.union(*self.domains.values())))

    @property
    def arity(self) -> int:
        """Largest number of arguments of an atom."""
        return max(len(atom) - 1 for atom in self.atoms)

    @property
    def atoms(self) -> tuple[Triple, ...]:
        """All atoms: of facts, validation, test and rules."""
        return (*self.facts, *self.valid, *self.test, *(atom for rule in self.rules for atom in rule.atoms))

    @property
    def longest_body(self) -> int:
        """Largest number of atoms in a rule's body."""
        return max(len(rule.body) for rule in self.rules)

    def largest_id(self, arity: int) -> int:
        """Largest id of a state being packed: a rule's fresh variables come above all others."""
        fresh = max(len(rule.variables) for rule in self.rules)
        return max(len(self.constants) + STATE_ATOMS * arity + 1 + fresh, len(self.predicates) + 3)


def read_problem(folder: str | os.PathLike[str], arity: int = 2) -> Problem:
    """Read the knowledge base in `folder`; `arity` is the largest number of arguments of a relation.

    Raises
    ------
    ConfigError
        A file is missing or holds something that cannot be used; the message names file, line and text.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(
            f"workload.data={folder} is no folder; give one that holds train.txt, test.txt and rules.txt"
        )
    triples = {name: read_triples(folder / f"{name}.txt", arity) for name in ("train", "test")}
    valid = folder / "valid.txt"
    rules = read_rules(folder / "rules.txt", arity)
    domains = folder / "domain2constants.txt"
    problem = Problem(
        facts=tuple(dict.fromkeys(triple for _, triple in triples["train"])),
        valid=tuple(triple for _, triple in read_triples(valid, arity)) if valid.exists() else (),
        test=tuple(triple for _, triple in triples["test"]),
        rules=rules,
        domains=read_domains(domains) if domains.exists() else {},
        repeated=len(triples["train"]) - len({triple for _, triple in triples["train"]}),
    )
    _refuse_unknown(problem, triples["test"])
    _refuse_mixed(problem, folder)
    return problem


def _lines(path: Path) -> Iterator[Line]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # a mark of byte order is no part of a relation's name
    except FileNotFoundError:
        raise ConfigError(
            f"{path} is missing; a data folder needs train.txt, test.txt and rules.txt"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is no UTF-8 text ({error.reason} at byte {error.start}); convert it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; give a folder of text files") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield Line(path, number, line.strip())


def read_triples(path: Path, arity: int = 2) -> list[tuple[Line, Triple]]:
    """Ground atoms with the lines they are on; an empty file is an error."""
    found = [(line, parse_ground(line, arity)) for line in _lines(path)]
    if not found:
        raise ConfigError(f"{path} holds no triple; write one 'relation(a,b).' per line")
    return found


def parse_ground(line: Line, arity: int) -> Triple:
    """``relation(a,b).``: split at the first ``(``, last commas and final ``)``; names may hold the rest."""
    text = line.text.removesuffix(".").rstrip()
    relation, opened, rest = text.partition("(")
    if not opened or not rest.endswith(")") or not relation.strip():
        raise line.wrong("is not of the form relation(a,b)")
    arguments = tuple(name.strip() for name in rest[:-1].rsplit(",", arity - 1))
    if not all(arguments):
        raise line.wrong("has an empty argument")
    if "," in arguments[0]:
        raise line.wrong(f"has more than {arity} arguments; set workload.arity")
    return (relation.strip(), *arguments)


def read_rules(path: Path, arity: int) -> tuple[Rule, ...]:
    """Rules of the form ``id:weight:b1(x,y), b2(y,z) -> h(x,z)``; ids and weights are not used."""
    rules = tuple(parse_rule(line, arity) for line in _lines(path))
    if not rules:
        raise ConfigError(
            f"{path} holds no rule; write one 'id:weight:body(x,y), body(y,z) -> head(x,z)' per line"
        )
    return rules


def parse_rule(line: Line, arity: int) -> Rule:
    """One rule; its body keeps its order, and each variable of the head must be in the body."""
    parts = line.text.split(":", 2)
    body_text, arrow, head_text = parts[-1].partition("->")
    if len(parts) < 3 or not arrow:
        raise line.wrong("is not of the form id:weight:body -> head")
    body, head = _atoms(line, body_text, arity), _atoms(line, head_text, arity)
    if len(head) != 1:
        raise line.wrong("needs exactly one atom in its head")
    bound = {variable for atom in body for variable in atom[1:]}
    if unbound := [variable for variable in head[0][1:] if variable not in bound]:
        raise line.wrong(f"has the head variable {unbound[0]}, which no body atom binds")
    return Rule(head[0], body, line)


def _atoms(line: Line, text: str, arity: int) -> tuple[Triple, ...]:
    atoms, place = [], 0
    text = text.strip()
    while place < len(text):
        found = BODY_ATOM.match(text, place)
        if not found:
            raise line.wrong(f"cannot be read at {text[place : place + 30]!r}")
        terms = tuple(term.strip() for term in found[2].split(","))
        if constants := [term for term in terms if not VARIABLE.match(term)]:
            raise line.wrong(f"has the constant {constants[0]!r}, and {SAY_CONSTANT}")
        if len(terms) > arity:
            raise line.wrong(f"has an atom with {len(terms)} arguments and workload.arity={arity}")
        atoms.append((found[1], *terms))
        place = found.end()
    if not atoms:
        raise line.wrong("has an empty body or head")
    return tuple(atoms)


def read_domains(path: Path) -> dict[str, tuple[str, ...]]:
    """``domain constant constant ...`` per line."""
    domains: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for line in _lines(path):
        name, *entities = line.text.split()
        if not entities:
            raise line.wrong("names a domain without constants")
        if name in domains:
            raise line.wrong("names a domain for the second time")
        for entity in entities:
            if owners.setdefault(entity, name) != name:
                raise line.wrong(f"puts {entity} into a second domain; it is in {owners[entity]}")
        domains[name] = tuple(entities)
    return domains


def _refuse_unknown(problem: Problem, queries: list[tuple[Line, Triple]]) -> None:
    constants, relations = set(problem.constants), set(problem.predicates)
    for line, query in queries:
        if query[0] not in relations:
            raise line.wrong(f"asks for the relation {query[0]}, which neither train.txt nor rules.txt knows")
        if unknown := [name for name in query[1:] if name not in constants]:
            raise line.wrong(
                f"asks about the constant {unknown[0]}, which train.txt and domain2constants.txt do not know"
            )


def _refuse_mixed(problem: Problem, folder: Path) -> None:
    """A relation has one number of arguments everywhere."""
    arguments: dict[str, int] = {}
    for atom in problem.atoms:
        if arguments.setdefault(atom[0], len(atom)) != len(atom):
            raise ConfigError(
                f"{folder}: the relation {atom[0]} has {arguments[atom[0]] - 1} arguments in one place and"
                f" {len(atom) - 1} in another; give one of them another name"
            )
