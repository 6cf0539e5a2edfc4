"""Bytes that an operator moves, by its operands alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.pipelines.profiling.roofline import moved, stored

A = torch.zeros(4, 8)
ROW = torch.zeros(1, 8)
TABLE, FEW, MANY = torch.zeros(5, 4), torch.zeros(2, dtype=torch.int64), torch.zeros(50, dtype=torch.int64)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "out", "expected"),
    [
        ("add", (A, A), {}, A, 3 * A.nbytes),
        ("add", (), {"input": A, "other": 1}, A, 2 * A.nbytes),
        ("split", (A, 2), {}, [A[:2], A[2:]], 2 * A.nbytes),
        ("stack", ([A, [A, None]],), {}, (A, A), 4 * A.nbytes),
        ("fill_", (A, 0.0), {}, A, A.nbytes),
        ("copy_", (A, ROW), {}, A, A.nbytes + ROW.nbytes),
        ("add_", (A, ROW), {}, A, 2 * A.nbytes + ROW.nbytes),
        ("empty", (3,), {}, A, 0),
        ("embedding", (TABLE, FEW), {}, torch.zeros(2, 4), 32 + FEW.nbytes + 32),
        ("embedding", (TABLE, MANY), {}, torch.zeros(50, 4), TABLE.nbytes + MANY.nbytes + 800),
        ("index_put_", (TABLE, [FEW], torch.zeros(2, 4)), {}, TABLE, FEW.nbytes + 32 + 2 * 32),
        ("index_put_", (TABLE, [MANY], torch.zeros(50, 4)), {}, TABLE, MANY.nbytes + 800 + 2 * TABLE.nbytes),
        ("scatter", (TABLE,), {}, TABLE, 0),
        ("view", (), {}, None, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operator_moves_what_it_reads_and_writes(
    name: str, args: Any, kwargs: Any, out: Any, expected: int
) -> None:
    assert moved(name, args, kwargs, out) == expected


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (A, 128),
        (A.double(), 256),
        (ROW.expand(4, 8), 32),
        (torch.zeros(1).expand(4, 8), 4),
        (torch.zeros(0, 8), 0),
        (torch.zeros(1, 8).expand(0, 8), 0),
        (A.t(), 128),
        (torch.tensor(1.0), 4),
        (A.to_mkldnn(), 0),
    ],
    ids=[
        "plain",
        "of eight bytes",
        "a row",
        "a number",
        "none",
        "none of a row",
        "turned",
        "scalar",
        "opaque",
    ],
)
def test_a_tensor_has_the_bytes_that_it_is_stored_in(tensor: torch.Tensor, expected: int) -> None:
    assert stored(tensor) == expected
