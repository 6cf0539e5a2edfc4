"""How much each answer token counts, worked out by hand for answers of 1, 2 and 3 tokens."""

from __future__ import annotations

import numpy as np
import pytest

from perfsweep.workloads.latentwire.data.term_weights import term_weights


@pytest.mark.parametrize(
    ("early", "expected"),
    [
        (1, [[1 / 3, 0, 0, 0]] * 3),
        (2, [[1 / 6, 0, 0, 0], [1 / 6, 1 / 4, 0, 0], [1 / 6, 1 / 4, 0, 0]]),
        # Nobody has a fourth token: the mean is over three.
        (4, [[1 / 9, 0, 0, 0], [1 / 9, 1 / 6, 0, 0], [1 / 9, 1 / 6, 1 / 3, 0]]),
    ],
)
def test_early_tokens_count_alike_whoever_has_them(early: int, expected: list[list[float]]) -> None:
    forced, first, early_weights = term_weights([1, 2, 3], 4, early)
    assert np.allclose(early_weights, expected)
    assert np.allclose(forced * 6, [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]])
    assert np.allclose(first * 3, [[1, 0, 0, 0]] * 3)
