"""Designs: which arms a sweep measures, and which arm is the base of which effect.

Every design turns into effects, pairs of complete arms (arm, base) whose log ratio of times per round is the
effect. A factorial main effect averages over several pairs. An interaction, and every effect of a fractional
design, is a contrast: a weighted sum of the log times of many arms. All other effects have one pair.

Two-level designs are fitted by least squares over their arms: log t = mu + sum b_i x_i + sum b_ij x_i x_j
with x = +-1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.store.records import Refused
from perfsweep.workloads.api import Levels, LevelValue, Toggle
from perfsweep.workloads.errors import ConfigError

Assignment = dict[str, LevelValue]


@dataclass(frozen=True)
class PlannedEffect:
    """An effect before its arms have ids."""

    design: str
    toggle: str
    level: str
    pairs: tuple[tuple[Assignment, Assignment], ...]
    reference: str | None = None
    also: tuple[str, ...] = ()
    contrast: tuple[tuple[Assignment, float], ...] = ()

    @property
    def arms(self) -> list[Assignment]:
        """All arms that it needs."""
        return [*(arm for pair in self.pairs for arm in pair), *(arm for arm, _ in self.contrast)]


@dataclass(frozen=True)
class Design:
    """What a design asks to be measured, and what a design over many toggles had to leave out."""

    effects: tuple[PlannedEffect, ...]
    refused: tuple[Refused, ...] = ()


def refusal(design: str, toggle: str, level: LevelValue, reason: object) -> Refused:
    """Note what was left out of a design, and why."""
    return Refused(design=design, toggle=toggle, level=str(level), reason=str(reason))


def one_at_a_time(space: Space, reference: Levels, axes: Mapping[str, Sequence[Any]] | None = None) -> Design:
    """Each level by itself, on top of the baseline and of whatever the level requires.

    The base is the arm without the level, so what a required level buys is never credited to the one that
    needs it.
    """
    effects, refused = [], []
    for toggle, value in _levels(space, axes):
        try:
            arm = space.closure({toggle.name: value}, onto=reference)
            base = space.without(arm, toggle.name)
        except ConfigError as error:
            if axes:  # the user asked for exactly this level
                raise
            refused.append(refusal("one_at_a_time", toggle.name, value, error))
            continue
        if arm != base:
            effects.append(_effect("one_at_a_time", toggle.name, value, arm, base))
    return Design(tuple(effects), tuple(refused))


def leave_one_out(space: Space, best: Mapping[str, Any], toggles: Iterable[str] | None = None) -> Design:
    """The best arm against itself without each of its toggles: what each still buys with the others."""
    arm = space.closure(best)
    names = [name for name in space.choices(arm) if toggles is None or name in toggles]
    if not names:
        raise ConfigError(
            "sweep.designs: leave_one_out needs `best`, an arm with at least one level off its baseline"
        )
    effects, refused = [], []
    for name in names:
        try:
            effects.append(_effect("leave_one_out", name, arm[name], arm, space.without(arm, name)))
        except ConfigError as error:
            refused.append(refusal("leave_one_out", name, arm[name], error))
    return Design(tuple(effects), tuple(refused))


def chain(space: Space, reference: Levels, reference_name: str, steps: Sequence[Mapping[str, Any]]) -> Design:
    """Levels added one by one: each step against the one before, and the last against the baseline."""
    if not steps:
        raise ConfigError("sweep.designs: chain needs `steps`, a list of levels that each step adds")
    effects, chosen, before = [], dict(space.choices(reference)), dict(reference)
    for step in steps:
        chosen.update(space.parse(step))
        arm = space.closure(chosen)
        name, value = "+".join(step), ",".join(str(v) for v in space.parse(step).values())
        if arm != before:
            effects.append(_effect("chain", name, value, arm, before, moved=set(step)))
        before = arm
    effects.append(PlannedEffect("chain", "all steps", "", ((before, dict(reference)),), reference_name))
    return Design(tuple(effects))


def ladder(space: Space, reference: Levels, axes: Mapping[str, Sequence[Any]]) -> Design:
    """The values of one toggle, smallest first, each against the baseline."""
    if len(axes) != 1:
        raise ConfigError(
            f"sweep.designs: ladder climbs one toggle, and {len(axes)} are given; name it under `levels`"
        )
    name, values = next(iter(axes.items()))
    parsed = {space.toggle(name).level(value).value for value in values}
    ordered = sorted(parsed, key=lambda value: (isinstance(value, str), value))
    sizes = one_at_a_time(space, reference, {name: ordered})
    return Design(
        tuple(PlannedEffect("ladder", e.toggle, e.level, e.pairs, None, e.also) for e in sizes.effects)
    )


def factorial(space: Space, reference: Levels, axes: Mapping[str, Sequence[Any]]) -> Design:
    """Every combination of two levels for each of several toggles.

    The main effect of a toggle is the mean over all pairs of arms that differ in it alone. Combinations that
    are illegal are left out, with the pairs they belong to. Two-way interactions are contrasts over all arms;
    they are refused where too few arms are legal to tell them apart.
    """
    if not 2 <= len(axes) <= 6:
        raise ConfigError(
            f"sweep.designs: factorial takes two to six toggles, and {len(axes)} are given under `levels`"
        )
    pairs_of_levels = {
        name: two_levels(space, reference, name, values, "factorial") for name, values in axes.items()
    }
    names = list(pairs_of_levels)
    arms: dict[tuple[LevelValue, ...], Assignment] = {}
    refused = []
    for combination in itertools.product(*pairs_of_levels.values()):
        chosen = dict(zip(names, combination, strict=True))
        try:
            arms[combination] = space.legal({**space.choices(reference), **chosen})
        except ConfigError as error:
            refused.append(refusal("factorial", "+".join(names), ",".join(map(str, combination)), error))
    effects = _main_effects(pairs_of_levels, arms)
    try:
        effects += _interactions(pairs_of_levels, arms)
    except ConfigError as error:
        refused.append(refusal("factorial", "interactions", "", error))
    return Design(tuple(effects), tuple(refused))


def _main_effects(
    levels: Mapping[str, tuple[LevelValue, LevelValue]], arms: Mapping[tuple[LevelValue, ...], Assignment]
) -> list[PlannedEffect]:
    """Main effects of a factorial: the pairs of legal arms that differ in one toggle alone."""
    effects = []
    for i, (name, (low, high)) in enumerate(levels.items()):
        bases = {row: (*row[:i], low, *row[i + 1 :]) for row in arms if row[i] == high}
        pairs = tuple((arms[row], arms[base]) for row, base in bases.items() if base in arms)
        if pairs:
            effects.append(PlannedEffect("factorial", name, str(high), pairs))
    return effects


def _interactions(
    levels: Mapping[str, tuple[LevelValue, LevelValue]], arms: Mapping[tuple[LevelValue, ...], Assignment]
) -> list[PlannedEffect]:
    """Two-way interactions of a factorial's legal arms."""
    highs = [high for _, high in levels.values()]
    signs = np.array(
        [[1 if value == high else -1 for value, high in zip(row, highs, strict=True)] for row in arms]
    )
    terms = main_effects_and_interactions(signs, list(levels)) if len(arms) else []
    return [
        contrast_effect(term, "factorial", levels, list(arms.values()))
        for term in terms
        if len(term.members[0][0]) == 2
    ]


def contrast_effect(
    term: Term, design: str, levels: Mapping[str, tuple[LevelValue, LevelValue]], arms: Sequence[Assignment]
) -> PlannedEffect:
    """A term as an effect of a design; it is shown by the arms that weigh most on either side."""
    most, least = int(np.argmax(term.weights)), int(np.argmin(term.weights))
    contrast = tuple(
        (arm, float(weight)) for arm, weight in zip(arms, term.weights, strict=True) if abs(weight) > 1e-12
    )
    names = term.members[0][0]
    level = str(levels[names[0]][1]) if len(names) == 1 else ""
    return PlannedEffect(design, term.name, level, ((arms[most], arms[least]),), contrast=contrast)


GENERATORS: dict[int, dict[int, str]] = {
    5: {5: "a b c d abcd"},
    6: {4: "a b c d abc bcd", 6: "a b c d e abcde"},
    7: {4: "a b c d abc bcd acd"},
    8: {4: "a b c d bcd acd abc abd", 5: "a b c d e f abcd abef"},
}
"""By number of toggles and resolution: at 4 interactions are known in groups, from 5 on one by one."""


def fractional(
    space: Space, reference: Levels, axes: Mapping[str, Sequence[Any]], resolution: int | None = None
) -> Design:
    """Main effects and two-way interactions of five to eight toggles from 16 to 64 arms.

    Every toggle at once, in a few of all combinations (Box and Hunter 1961). Illegal combinations are left
    out where the rest still tells main effects apart.

    Raises
    ------
    ConfigError
        No design is known for this number of toggles and resolution, or too many combinations are illegal.
    """
    generators = _generators(len(axes), resolution)
    from pyDOE3 import fracfact  # scipy comes with it, and only this design needs it

    signs = fracfact(generators).astype(int)
    levels = {name: two_levels(space, reference, name, values, "fractional") for name, values in axes.items()}
    arms, legal, refused = _legal(space, reference, levels, signs)
    try:
        terms = main_effects_and_interactions(signs[legal], list(levels))
    except ConfigError as error:
        illegal = f"{len(refused)} of {len(signs)} combinations are illegal"
        why = f" ({illegal}, such as {refused[0].level}: {refused[0].reason})" if refused else ""
        raise ConfigError(f"sweep.designs: fractional: {error}{why}") from None
    return Design(tuple(contrast_effect(term, "fractional", levels, arms) for term in terms), tuple(refused))


def _generators(toggles: int, resolution: int | None) -> str:
    """The columns of a design; without a resolution those of the smallest one."""
    known = GENERATORS.get(toggles)
    if known is None:
        raise ConfigError(
            f"sweep.designs: fractional takes five to eight toggles, and {toggles} are given under"
            " `levels`; up to four fit into a factorial"
        )
    if resolution is not None and resolution not in known:
        choices = ", ".join(map(str, known))
        raise ConfigError(
            f"sweep.designs: resolution {resolution} with {toggles} toggles is unknown; choose from:"
            f" {choices}"
        )
    return known[resolution or min(known)]


def _legal(
    space: Space, reference: Levels, levels: Mapping[str, tuple[LevelValue, LevelValue]], signs: np.ndarray
) -> tuple[list[Assignment], list[int], list[Refused]]:
    """Legal arms, their rows in the design, and what was left out."""
    arms, rows, refused = [], [], []
    for number, row in enumerate(signs):
        chosen = {name: pair[int(sign > 0)] for (name, pair), sign in zip(levels.items(), row, strict=True)}
        try:
            arms.append(space.legal({**space.choices(reference), **chosen}))
            rows.append(number)
        except ConfigError as error:
            text = ",".join(f"{name}={value}" for name, value in chosen.items())
            refused.append(refusal("fractional", "+".join(levels), text, error))
    return arms, rows, refused


def named_arms(
    space: Space, named: Mapping[str, Mapping[str, Any]], references: Mapping[str, Levels]
) -> Design:
    """Listed arms, each against every named reference."""
    if not named:
        raise ConfigError("sweep.designs: arms needs `arms`, a mapping of a name to levels")
    effects = []
    for name, chosen in named.items():
        arm = space.closure(chosen)
        for reference_name, reference in references.items():
            if arm != reference:
                effects.append(
                    PlannedEffect(
                        "arms", name, f"vs {reference_name}", ((arm, dict(reference)),), reference_name
                    )
                )
    return Design(tuple(effects))


def steps(parts: Mapping[str, Sequence[str]], references: Mapping[str, Levels]) -> list[PlannedEffect]:
    """Plan the step from one reference to another that each part of gains is.

    Raises
    ------
    ConfigError
        A part names no two references of the sweep.
    """
    for name, ends in parts.items():
        if len(ends) != 2 or len(set(ends) & set(references)) != 2:
            raise ConfigError(
                f"sweep.parts.{name}=[{','.join(map(str, ends))}]: it must be two baselines of the sweep."
                f" Choose from: {', '.join(references)}."
            )
    return [
        PlannedEffect("arms", end, f"vs {start}", ((dict(references[end]), dict(references[start])),), start)
        for start, end in parts.values()
    ]


def _levels(space: Space, axes: Mapping[str, Sequence[Any]] | None) -> list[tuple[Toggle, LevelValue]]:
    if axes is None:
        return [(toggle, level.value) for toggle in space.toggles.values() for level in toggle.levels]
    levels = []
    for name, values in axes.items():
        toggle = space.toggle(name)
        chosen = values or [level.value for level in toggle.levels]
        levels += [(toggle, toggle.level(value).value) for value in chosen]
    return levels


def two_levels(
    space: Space, reference: Levels, name: str, values: Sequence[Any], design: str
) -> tuple[LevelValue, LevelValue]:
    """The low and the high level of a toggle in a two-level design; one that is given is the high one."""
    toggle = space.toggle(name)
    chosen = [toggle.level(value).value for value in values]
    if len(chosen) == 1:
        chosen.insert(0, reference[name])
    if len(set(chosen)) != 2:
        raise ConfigError(
            f"sweep.designs: {design} needs two levels of {name}; its levels are: {toggle.choices}"
        )
    return chosen[0], chosen[1]


def _effect(
    design: str,
    toggle: str,
    value: LevelValue,
    arm: Assignment,
    base: Assignment,
    moved: set[str] | None = None,
) -> PlannedEffect:
    also = tuple(name for name in arm if arm[name] != base[name] and name not in (moved or {toggle}))
    return PlannedEffect(design, toggle, str(value), ((arm, dict(base)),), None, also)


@dataclass(frozen=True)
class Term:
    """One thing that a design estimates.

    Attributes
    ----------
    members : toggles of the main effect, or of each of the interactions that are confounded; the sign
        is that of a member against the first
    weights : [arms] of the log times; of a main effect they give log(time with / time without), of an
        interaction log(t(both) t(none) / (t(A) t(B)))
    """

    members: tuple[tuple[tuple[str, ...], int], ...]
    weights: np.ndarray

    @property
    def name(self) -> str:
        """``amp``, ``amp x compile``, or ``amp x compile = pin x gc`` where only their sum shows."""
        first, *rest = [(" x ".join(names), sign) for names, sign in self.members]
        return " = ".join([first[0], *(text if sign > 0 else f"-({text})" for text, sign in rest)])


def main_effects_and_interactions(signs: np.ndarray, names: Sequence[str]) -> list[Term]:
    """The terms a design [arms, toggles] of +-1 estimates; confounded interactions are one term.

    Raises
    ------
    ConfigError
        A main effect cannot be told from the mean, from another, or from an interaction, or too few arms are
        left.
    """
    mains = [((name,), signs[:, i]) for i, name in enumerate(names)]
    both = itertools.combinations(range(len(names)), 2)
    pairs = [((names[i], names[j]), signs[:, i] * signs[:, j]) for i, j in both]
    groups: list[list[tuple[tuple[str, ...], np.ndarray]]] = [[(("the mean",), np.ones(len(signs)))]]
    groups += _grouped(mains + pairs, groups)
    for group in groups:
        least = min(len(members) for members, _ in group) if group is not groups[0] else 1
        if len(group) > 1 and least == 1:
            first, second = (" x ".join(members) for members, _ in group[:2])
            raise ConfigError(
                f"{first} and {second} are confounded in this design; add arms, or leave a toggle out"
            )
    # The pseudo-inverse's rows are the least squares coefficients, as weights of the arms' log times.
    matrix = np.stack([group[0][1] for group in groups], axis=1).astype(float)
    if np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        raise ConfigError(
            f"{len(signs)} legal arms cannot tell {matrix.shape[1]} main effects and interactions apart; "
            "add arms, or leave a toggle out"
        )
    return [_term(group, row) for group, row in zip(groups[1:], np.linalg.pinv(matrix)[1:], strict=True)]


def _grouped(
    columns: list[tuple[tuple[str, ...], np.ndarray]], found: list[list[tuple[tuple[str, ...], np.ndarray]]]
) -> list[list[tuple[tuple[str, ...], np.ndarray]]]:
    """Columns that are equal but for their sign, together; those equal to one of `found` join it there."""
    new: list[list[tuple[tuple[str, ...], np.ndarray]]] = []
    for members, column in columns:
        for group in (*found, *new):
            if abs(int(column @ group[0][1])) == len(column):
                group.append((members, column))
                break
        else:
            new.append([(members, column)])
    return new


def _term(group: list[tuple[tuple[str, ...], np.ndarray]], row: np.ndarray) -> Term:
    first = group[0][1]
    members = tuple((names, 1 if column @ first > 0 else -1) for names, column in group)
    # With less without is twice the coefficient of a toggle, four times that of an interaction.
    return Term(members, row * (2 if len(members[0][0]) == 1 else 4))
