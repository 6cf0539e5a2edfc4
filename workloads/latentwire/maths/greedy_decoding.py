"""Greedy answers, row by row as upstream does it, or all rows together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.maths.attention import Mask
from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.maths.passes import AttentionContext, KeyValues, keys_in, of_row
from perfsweep.workloads.latentwire.maths.trainables import Lora

STOP_TEST_EVERY = 4
CLOSE = 0.05  # logits of standard deviation one: 16-bit rounding stays below


class Decoder:
    """Continues embedded prefixes greedily, row by row, until `stop` or `max_new`; `lora` is added."""

    def __init__(self, lm: CausalLM, stop: int, max_new: int, lora: Lora | None = None) -> None:
        self.lm, self._lora = lm, lora
        self._stop, self._max_new = stop, max_new
        self._counts = lm.chosen.counts

    @torch.no_grad()
    def __call__(
        self, x: Tensor, lengths: Sequence[int], past: KeyValues | None = None
    ) -> tuple[Tensor, Tensor]:
        """Ids [B, max_new], `stop` from the end on, and whether a choice so far was close [B, max_new].

        x [B, S, d] are embedded prefixes of `lengths` positions each, padded right. They follow the keys and
        values `past` [B, g, M, e] of every layer.
        """
        rows = [self._alone(x[i : i + 1, :length], of_row(past, i)) for i, length in enumerate(lengths)]
        return torch.cat([ids for ids, _ in rows]), torch.cat([close for _, close in rows])

    def _run(self, x: Tensor, context: AttentionContext, keep: KeyValues) -> Tensor:
        self._counts["decode_calls"] += 1
        return self.lm.run(x, context, keep=keep, lora=self._lora)

    def _alone(self, x: Tensor, past: KeyValues | None) -> tuple[Tensor, Tensor]:
        """One row: every token is read on the host before the next is asked for."""
        ids, close = [self._stop] * self._max_new, [False] * self._max_new
        held: KeyValues = []
        hidden = self._run(x, AttentionContext(past), held)
        for t in range(self._max_new):
            best = self.lm.logits(hidden[:, -1]).topk(2, dim=-1)
            ids[t] = int(best.indices[0, 0].item())
            close[t] = bool((best.values[0, 0] - best.values[0, 1] < CLOSE).item())
            self._counts["syncs"] += 2
            if ids[t] == self._stop or t == self._max_new - 1:
                break
            past, held = held, []
            token = self.lm.embed(torch.tensor([[ids[t]]], device=x.device))
            hidden = self._run(token, AttentionContext(past), held)
        device = x.device
        return torch.tensor([ids], device=device), torch.tensor([close], device=device).cummax(dim=1).values


class BatchDecoder(Decoder):
    """Continues all rows together."""

    @torch.no_grad()
    def __call__(
        self, x: Tensor, lengths: Sequence[int], past: KeyValues | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `Decoder`: pads of shorter prefixes are never seen, and each row goes on at its own position."""
        rows, width = x.shape[:2]
        ends = torch.tensor(lengths, device=x.device)
        held: KeyValues = []
        first = keys_in(past)
        hidden = self._run(x, AttentionContext(past), held)
        hidden = hidden.gather(1, (ends - 1)[:, None, None].expand(-1, 1, hidden.shape[-1]))
        ids = torch.full((rows, self._max_new), self._stop, device=x.device)
        close = torch.zeros(rows, self._max_new, dtype=torch.bool, device=x.device)
        over = torch.zeros(rows, dtype=torch.bool, device=x.device)
        seen = torch.arange(-first, width, device=x.device) < ends[:, None]
        for t in range(self._max_new):
            best = self.lm.logits(hidden[:, -1]).topk(2, dim=-1)
            ids[:, t] = torch.where(over, self._stop, best.indices[:, 0])
            close[:, t] = (best.values[:, 0] - best.values[:, 1] < CLOSE) & ~over
            over = over | (ids[:, t] == self._stop)
            if t == self._max_new - 1 or self._all_over(over, t):
                break
            seen = torch.cat((seen, seen.new_ones(rows, 1)), dim=1)
            past, held = held, []
            mask, positions = Mask(visible=seen[:, None, None, :]), (first + ends + t)[:, None]
            context = AttentionContext(past, mask, positions)
            hidden = self._run(self.lm.embed(ids[:, t : t + 1]), context, held)
        return ids, close.cummax(dim=1).values

    def _all_over(self, over: Tensor, t: int) -> bool:
        if (t + 1) % STOP_TEST_EVERY:
            return False
        self._counts["syncs"] += 1
        return bool(over.all().item())
