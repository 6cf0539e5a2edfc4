"""Whether a decomposition has found the features of a toy whose answer is known: one subcomponent for each.

Nothing of the implementation is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

WRONG = 0.1
"""Distance from 0 or 1 beyond which an importance is off."""


def ci_errors(importances: np.ndarray) -> int:
    """Entries that are off by more than 0.1 once columns are assigned to features as well as they can be.

    The target is the identity: one component for each feature, and the others silent.
    """
    features, count = importances.shape
    rows, columns = linear_sum_assignment(-importances)
    target = np.zeros((features, count))
    target[rows, columns] = 1.0
    return int((np.abs(importances - target) > WRONG).sum())


@dataclass(frozen=True)
class Recovery:
    """How well a decomposition recovers the toy's own columns.

    Attributes
    ----------
    ci_errors : importances of single features that are off by more than 0.1
    distinct : different subcomponents that the features use, of each module
    most_active : the most subcomponents that one feature uses, of each module
    cosine : of the worst feature, between its row of its subcomponent and its true column
    low, high : smallest and largest ratio of the two norms
    elsewhere : largest share of a subcomponent's energy that lies on other features
    """

    ci_errors: int
    distinct: tuple[int, int]
    most_active: tuple[int, int]
    cosine: float
    low: float
    high: float
    elsewhere: float

    @property
    def found(self) -> bool:
        """Whether each feature has its own subcomponent and direction; the second module's may be shared."""
        alone = self.ci_errors == 0 and self.distinct[1] >= 3 and self.most_active[1] <= 2
        return alone and self.cosine > 0.99 and self.low >= 0.9 and self.high <= 1.1 and self.elsewhere < 0.02

    @property
    def word(self) -> str:
        """The verdict as it is printed."""
        return "found" if self.found else "NOT FOUND"

    def __str__(self) -> str:
        return (
            f"{self.word}: {self.ci_errors} importances off, "
            f"{self.distinct[0]} and {self.distinct[1]} distinct subcomponents, cosine >= {self.cosine:.4f}, "
            f"norm ratio {self.low:.3f} to {self.high:.3f}, energy elsewhere <= {100 * self.elsewhere:.2f} %"
        )


def judge(importances: Mapping[str, np.ndarray], V: Tensor, U: Tensor, columns: Tensor) -> Recovery:
    """Figures of a decomposition.

    Parameters
    ----------
    importances : [f, C] of both modules, of one feature at a time
    V, U : of the first module, [f, C] and [C, d]
    columns : what each feature is in the target [f, d]
    """
    used = {name: ci.argmax(1) for name, ci in importances.items()}
    active = [int((importances[name] > WRONG).sum(1).max()) for name in ("linear1", "linear2")]
    outer = torch.stack([torch.outer(V[:, c], U[c]) for c in used["linear1"].tolist()])  # [f, f, d]
    own = outer.diagonal(dim1=0, dim2=1).T
    ratios = own.norm(dim=1) / columns.norm(dim=1)
    elsewhere = 1 - own.square().sum(1) / outer.square().sum((1, 2))
    return Recovery(
        ci_errors(importances["linear1"]),
        (len(set(used["linear1"].tolist())), len(set(used["linear2"].tolist()))),
        (active[0], active[1]),
        float(torch.nn.functional.cosine_similarity(own, columns, dim=1).min()),
        float(ratios.min()),
        float(ratios.max()),
        float(elsewhere.max()),
    )
