"""Knowledge bases made on the spot, equal for equal seeds: families, countries, and one wide relation."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from perfsweep.workloads.prover.data.formats import Problem, Rule, Triple

Pair = tuple[str, str]

KINSHIP_RULES = """
    husband(X,Y) <- wife(Y,X)
    wife(X,Y) <- husband(Y,X)
    son(X,Y) <- brother(X,Z), son(Z,Y)
    son(X,Y) <- brother(X,Z), daughter(Z,Y)
    son(X,Y) <- son(X,Z), husband(Y,Z)
    son(X,Y) <- son(X,Z), wife(Y,Z)
    daughter(X,Y) <- sister(X,Z), daughter(Z,Y)
    daughter(X,Y) <- sister(X,Z), son(Z,Y)
    daughter(X,Y) <- daughter(X,Z), husband(Y,Z)
    daughter(X,Y) <- daughter(X,Z), wife(Y,Z)
    father(X,Y) <- husband(X,Z), mother(Z,Y)
    father(X,Y) <- father(X,Z), brother(Z,Y)
    father(X,Y) <- father(X,Z), sister(Z,Y)
    mother(X,Y) <- wife(X,Z), father(Z,Y)
    mother(X,Y) <- mother(X,Z), brother(Z,Y)
    mother(X,Y) <- mother(X,Z), sister(Z,Y)
    brother(X,Y) <- brother(X,Z), brother(Z,Y)
    brother(X,Y) <- brother(X,Z), sister(Z,Y)
    brother(X,Y) <- son(X,Z), father(Z,Y)
    brother(X,Y) <- son(X,Z), mother(Z,Y)
    sister(X,Y) <- sister(X,Z), sister(Z,Y)
    sister(X,Y) <- sister(X,Z), brother(Z,Y)
    sister(X,Y) <- daughter(X,Z), father(Z,Y)
    sister(X,Y) <- daughter(X,Z), mother(Z,Y)
    uncle(X,Y) <- brother(X,Z), father(Z,Y)
    uncle(X,Y) <- brother(X,Z), mother(Z,Y)
    uncle(X,Y) <- uncle(X,Z), brother(Z,Y)
    uncle(X,Y) <- uncle(X,Z), sister(Z,Y)
    aunt(X,Y) <- sister(X,Z), father(Z,Y)
    aunt(X,Y) <- sister(X,Z), mother(Z,Y)
    aunt(X,Y) <- aunt(X,Z), brother(Z,Y)
    aunt(X,Y) <- aunt(X,Z), sister(Z,Y)
    nephew(X,Y) <- son(X,Z), brother(Z,Y)
    nephew(X,Y) <- son(X,Z), sister(Z,Y)
    nephew(X,Y) <- brother(X,Z), nephew(Z,Y)
    nephew(X,Y) <- brother(X,Z), niece(Z,Y)
    niece(X,Y) <- daughter(X,Z), brother(Z,Y)
    niece(X,Y) <- daughter(X,Z), sister(Z,Y)
    niece(X,Y) <- sister(X,Z), nephew(Z,Y)
    niece(X,Y) <- sister(X,Z), niece(Z,Y)
"""
COUNTRY_RULES = """
    locatedIn(X,Z) <- neighborOf(X,Y), locatedIn(Y,Z)
    locatedIn(X,Z) <- neighborOf(X,Y), neighborOf(Y,K), locatedIn(K,Z)
"""
WIDE_RULES = """
    reaches(X,Z) <- cites(Y,Z), trusts(Y,X)
    reaches(X,Z) <- cites(Y,Z), cites(Y,X)
    cited(X,Y) <- cites(Y,X)
"""
GENERATIONS = 4
MAX_CLAN = 60
MIN_CLAN = 25


def parsed_rules(text: str) -> tuple[Rule, ...]:
    """Rules written ``head <- body`` one per line."""

    def atom(written: str) -> Triple:
        relation, _, terms = written.strip().rstrip(")").partition("(")
        return (relation, *terms.split(","))

    rules = []
    for line in filter(None, map(str.strip, text.splitlines())):
        head, _, body = line.partition("<-")
        rules.append(
            Rule(atom(head), tuple(atom(part) for part in body.replace(" ", "").replace("),", ") ").split()))
        )
    return tuple(rules)


@dataclass
class Clan:
    """People of one family tree, by name."""

    parents: dict[str, Pair] = field(default_factory=dict)  # child: father, mother
    couples: list[Pair] = field(default_factory=list)
    male: dict[str, bool] = field(default_factory=dict)

    def born(self, name: str, male: bool, parents: Pair | None = None) -> str:
        """Add a member of the family."""
        self.male[name] = male
        if parents:
            self.parents[name] = parents
        return name


def grow_clan(rng: random.Random, prefix: str) -> Clan:
    """Founders and their descendants, spouses from among non-siblings or from outside, 25 to 60 people."""
    while True:
        clan = Clan()
        couples = [_marry(clan, rng, prefix, None) for _ in range(3)]
        for _ in range(GENERATIONS - 1):
            children = [
                _child(clan, rng, prefix, couple) for couple in couples for _ in range(1 + _poisson(rng, 1.5))
            ]
            couples = _pair_up(clan, rng, prefix, children)
            if len(clan.male) >= MAX_CLAN:
                break
        if MIN_CLAN <= len(clan.male) <= MAX_CLAN:
            return clan


def _poisson(rng: random.Random, mean: float) -> int:
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product, count = product * rng.random(), count + 1
    return count


def _marry(clan: Clan, rng: random.Random, prefix: str, person: str | None) -> Pair:
    """A couple of `person` and one from outside, or of two newcomers."""
    partners = [person or clan.born(f"{prefix}p{len(clan.male)}", rng.random() < 0.5)]
    partners.append(clan.born(f"{prefix}p{len(clan.male)}", not clan.male[partners[0]]))
    couple = (partners[0], partners[1]) if clan.male[partners[0]] else (partners[1], partners[0])
    clan.couples.append(couple)
    return couple


def _child(clan: Clan, rng: random.Random, prefix: str, parents: Pair) -> str:
    return clan.born(f"{prefix}p{len(clan.male)}", rng.random() < 0.5, parents)


def _pair_up(clan: Clan, rng: random.Random, prefix: str, children: list[str]) -> list[Pair]:
    """Couples of a generation: non-siblings with one another, some of the rest with outsiders."""
    rng.shuffle(children)
    couples, single = [], list(children)
    while single:
        person = single.pop()
        fit = [
            p for p in single if clan.male[p] != clan.male[person] and clan.parents[p] != clan.parents[person]
        ]
        if fit:
            single.remove(fit[0])
            couple = (person, fit[0]) if clan.male[person] else (fit[0], person)
            clan.couples.append(couple)
            couples.append(couple)
        elif rng.random() < 0.4:
            couples.append(_marry(clan, rng, prefix, person))
    return couples


def relations_of(clan: Clan) -> dict[str, set[Pair]]:
    """Exactly closed relations of a clan."""
    name = {True: ("father", "son", "brother", "husband"), False: ("mother", "daughter", "sister", "wife")}
    found: dict[str, set[Pair]] = {relation: set() for pair in name.values() for relation in pair}
    found |= {relation: set() for relation in ("uncle", "aunt", "nephew", "niece")}
    for child, parents in clan.parents.items():
        for parent in parents:
            found[name[clan.male[parent]][0]].add((parent, child))
            found[name[clan.male[child]][1]].add((child, parent))
        for other, others in clan.parents.items():
            if other != child and others == parents:
                found[name[clan.male[child]][2]].add((child, other))
    for husband, wife in clan.couples:
        found["husband"].add((husband, wife))
        found["wife"].add((wife, husband))
    for relative, parent in found["brother"] | found["sister"]:
        for father, child in found["father"] | found["mother"]:
            if father == parent:
                found["uncle" if clan.male[relative] else "aunt"].add((relative, child))
                found["nephew" if clan.male[child] else "niece"].add((child, relative))
    return found


def kinship(clans: int, seed: int = 0, hide: float = 0.2, distractors: int = 0) -> Problem:
    """Disjoint families. A share `hide` of derived and half of it of base triples becomes valid and test.

    `distractors` rules are type correct and false.
    """
    rng = random.Random(f"kinship {seed}")
    facts, hidden = [], []
    for number in range(clans):
        for relation, pairs in relations_of(grow_clan(rng, f"c{number}")).items():
            share = hide if relation in ("uncle", "aunt", "nephew", "niece") else hide / 2
            for pair in sorted(pairs):
                (hidden if rng.random() < share else facts).append((relation, *pair))
    rng.shuffle(hidden)
    third = len(hidden) // 3
    known = {name for fact in facts for name in fact[1:]}
    asked = [triple for triple in hidden if known.issuperset(triple[1:])]
    rules = (*parsed_rules(KINSHIP_RULES), *_distractors(rng, distractors))
    return Problem(
        tuple(facts), tuple(asked[:third]), tuple(asked[third:]), rules, {"people": tuple(sorted(known))}
    )


def _distractors(rng: random.Random, count: int) -> Iterable[Rule]:
    names = ("father", "mother", "son", "daughter", "brother", "sister")
    for _ in range(count):
        first, second, head = (rng.choice(names) for _ in range(3))
        yield Rule((head, "X", "Y"), ((first, "X", "Z"), (second, "Z", "Y")))


def countries(count: int, seed: int = 0, hide: float = 0.2) -> Problem:
    """Regions, subregions, countries, neighbours in the plane; test countries and theirs lose regions."""
    rng = random.Random(f"countries {seed}")
    points = {f"country{number}": (rng.random(), rng.random()) for number in range(count)}
    region = {name: f"region{int(2 * x)}" for name, (x, _) in points.items()}
    subregion = {name: f"subregion{int(2 * x)}_{int(3 * y)}" for name, (x, y) in points.items()}
    neighbours = _neighbours(points)
    asked = rng.sample(sorted(points), max(2, int(hide * count)))
    cut = set(asked[: max(1, len(asked) // 2)])
    without = set(asked) | {b for a, b in neighbours if a in cut}
    facts = [("neighborOf", a, b) for a, b in sorted(neighbours)]
    facts += [("locatedIn", name, subregion[name]) for name in points if name not in cut]
    facts += [("locatedIn", name, region[name]) for name in points if name not in without]
    facts += sorted({("locatedIn", subregion[name], region[name]) for name in points})
    known = {name for fact in facts for name in fact[1:]}
    queries = [("locatedIn", name, region[name]) for name in asked if region[name] in known]
    above = {"subregions": subregion.values(), "regions": region.values()}
    domains = {"countries": tuple(points)} | {kind: tuple(sorted(set(all_))) for kind, all_ in above.items()}
    half = len(queries) // 2
    rules = parsed_rules(COUNTRY_RULES)
    return Problem(tuple(facts), tuple(queries[:half]), tuple(queries[half:]), rules, domains)


def _neighbours(points: dict[str, tuple[float, float]]) -> set[tuple[str, str]]:
    """Pairs of near points, in both orders."""
    near = {(a, b) for a in points for b in _nearest(points, a)}
    return near | {(b, a) for a, b in near}


def _nearest(points: dict[str, tuple[float, float]], name: str, k: int = 3) -> list[str]:
    others = sorted(
        (math.dist(points[name], point), other) for other, point in points.items() if other != name
    )
    return [other for _, other in others[:k]]


def wide(entities: int, seed: int = 0, max_degree: int = 400) -> Problem:
    """One relation, in-degrees by Zipf's law up to `max_degree`: lists beyond the cap, huge predicates."""
    rng = random.Random(f"wide {seed}")
    names = [f"e{number}" for number in range(entities)]
    facts = set()
    for place, target in enumerate(names):
        degree = max(2, min(max_degree, entities - 1, max_degree // (place + 1)))
        facts |= {("cites", source, target) for source in rng.sample(names, degree) if source != target}
    facts |= {("trusts", rng.choice(names), rng.choice(names)) for _ in range(entities // 4)}
    ordered = sorted(facts)
    # Half of the queries end at the most cited, whose lists are beyond the cap.
    ends = [names[number % 4] if number % 2 else rng.choice(names) for number in range(40)]
    asked = [("reaches", rng.choice(names), end) for end in ends]
    asked = [triple for triple in asked if triple[1] != triple[2] and ("cites", *triple[1:]) not in facts]
    return Problem(tuple(ordered), (), tuple(dict.fromkeys(asked)), parsed_rules(WIDE_RULES))


def generate(name: str, size: int, seed: int, hide: float, distractors: int) -> Problem:
    """The problem of a generator by name."""
    if name == "kinship":
        return kinship(size, seed, hide, distractors)
    return countries(max(size, 8), seed, hide) if name == "countries" else wide(max(size, 8), seed)
