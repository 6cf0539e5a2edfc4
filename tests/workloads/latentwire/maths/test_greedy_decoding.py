"""Greedy answers of a model whose next token is scripted, row by row and all together."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.latentwire.maths.greedy_decoding import CLOSE, BatchDecoder, Decoder
from perfsweep.workloads.latentwire.maths.passes import AttentionContext

STOP = 0


class Scripted:
    """Says what stands in a row's script, token by token; embedded tokens carry the row's number.

    Where a script has a negative number, the choice of its absolute value is close.
    """

    def __init__(self, scripts: list[list[int]]) -> None:
        self.scripts = scripts
        self.counts: Counter[str] = Counter()
        self.chosen = SimpleNamespace(counts=self.counts)
        self.positions: list[list[int] | None] = []
        self.rows: list[int] = []
        self.said: dict[int, int] = {}

    def prefixes(self, lengths: list[int]) -> torch.Tensor:
        """Embedded prefixes [B, S, 2], padded with rubbish."""
        x = torch.full((len(lengths), max(lengths), 2), 99.0)
        for row, length in enumerate(lengths):
            x[row, :length, 0], x[row, :length, 1] = row, -1
        return x

    def run(self, x: torch.Tensor, context: AttentionContext, *, keep: list, lora: Any) -> torch.Tensor:
        positions = context.position_ids
        self.positions.append(None if positions is None else positions[:, 0].tolist())
        keep.append((torch.zeros(len(x), 1, 1, 1), torch.zeros(len(x), 1, 1, 1)))
        if (positions is None and len(x) > 1) or x.shape[1] > 1 or not self.rows:
            self.rows = x[:, 0, 0].int().tolist()
        return x

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(*ids.shape, 2)
        found[:, 0, 0] = torch.tensor(self.rows)
        return found

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(len(hidden), 9)
        for place, row in enumerate(hidden[:, 0].int().tolist()):
            said = self.said.get(row, 0)
            token = self.scripts[row][said] if said < len(self.scripts[row]) else STOP
            self.said[row] = said + 1
            found[place, abs(token)] = CLOSE * (0.9 if token < 0 else 1.1)
        return found


SCRIPTS = [[3, 4, STOP], [5, -6, 7, 8, 2], [STOP]]
IDS = [[3, 4, 0, 0], [5, 6, 7, 8], [0, 0, 0, 0]]
DOUBT = [[False] * 4, [False, True, True, True], [False] * 4]


@pytest.mark.parametrize("batched", [False, True])
def test_rows_go_on_until_their_end_or_the_limit(batched: bool) -> None:
    lm: Any = Scripted(SCRIPTS)
    lengths = [2, 3, 1]
    ids, close = (BatchDecoder if batched else Decoder)(lm, STOP, 4)(lm.prefixes(lengths), lengths)
    assert ids.tolist() == IDS
    assert close.tolist() == DOUBT
    assert lm.counts["decode_calls"] == (4 if batched else 3 + 4 + 1)
    if batched:  # each row goes on at its own position
        assert lm.positions[1:] == [[2, 3, 1], [3, 4, 2], [4, 5, 3]]
    assert lm.counts["syncs"] == (0 if batched else 2 * (3 + 4 + 1))
