"""What two-level designs tell apart: main effects, interactions, and their contrasts of log times.

Model: log t = mu + sum b_i x_i + sum b_ij x_i x_j with x = +-1, fitted by least squares over the arms of a
design.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfsweep.workloads.errors import ConfigError


@dataclass(frozen=True)
class Term:
    """One thing that a design estimates.

    Attributes
    ----------
    members : toggles of the main effect, or of each interaction that the design cannot tell apart; the sign
        is that of a member against the first
    weights : [arms] of the log times; of a main effect they give log(time with / time without), of an
        interaction the log of what both take together over the product of what each takes by itself
    """

    members: tuple[tuple[tuple[str, ...], int], ...]
    weights: np.ndarray

    @property
    def name(self) -> str:
        """``amp``, ``amp x compile``, or ``amp x compile = pin x gc`` where only their sum shows."""
        first, *rest = [(" x ".join(names), sign) for names, sign in self.members]
        return " = ".join([first[0], *(text if sign > 0 else f"-({text})" for text, sign in rest)])


def main_effects_and_interactions(signs: np.ndarray, names: Sequence[str]) -> list[Term]:
    """The terms a design [arms, toggles] of +-1 estimates; interactions it cannot tell apart are one term.

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
                f"this design cannot tell {first} from {second}; add arms, or leave a toggle out"
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
