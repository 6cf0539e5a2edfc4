"""The student's passes: one for each loss as upstream runs them, or one for all.

Every variant predicts y_j at position P-1+j of ``[BOS?][latents][anchor][y_0 .. ]`` and so gives the same
numbers; they differ in how often the prefix is computed and where the head is applied. A deep prefix stands
before the row in every layer: the row's positions count from M then.

Dimensions: B rows, P prefix positions, T answer tokens, K early tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.maths.lora import Lora
from perfsweep.workloads.latentwire.maths.losses import StudentOut, cross_entropy
from perfsweep.workloads.latentwire.maths.passes import AttentionContext, KeyValues, Rows


@dataclass(frozen=True)
class StudentPath:
    """Levels of the toggles k_loss, passes, logits and last_block."""

    k_loss: str
    merged: bool
    logits: str
    pruned: bool
    keep_states: bool = False


@dataclass(frozen=True)
class Prefix:
    """The tokens before an answer.

    Attributes
    ----------
    tokens : soft tokens [B, M, d], or all that stands before the answer [B, P, d], embedded
    past : keys and values [B, g, M, e] of every layer before all tokens; None: there are none
    """

    tokens: Tensor
    past: KeyValues | None = None


class Student:
    """One frozen model with its additions, if it has any, asked for the answers after its soft tokens."""

    def __init__(
        self,
        lm: CausalLM,
        path: StudentPath,
        before: list[int],
        anchor: list[int],
        early_tokens: int,
        lora: Lora | None = None,
    ) -> None:
        self.lm = lm
        self.lora = lora
        self.path = path
        self.early_tokens = early_tokens
        device = lm.table.device
        self._before = lm.embed(torch.tensor(before, device=device, dtype=torch.long)).detach()
        self._anchor = lm.embed(torch.tensor(anchor, device=device, dtype=torch.long)).detach()
        self._counts = lm.chosen.counts

    def start(self, prefix: Prefix) -> Prefix:
        """Soft tokens [B, M, d] with the tokens around them: [B, P, d]"""
        soft = prefix.tokens.to(self._anchor.dtype)
        around = [part.expand(soft.shape[0], -1, -1) for part in (self._before, self._anchor)]
        return Prefix(torch.cat((around[0], soft, around[1]), dim=1), prefix.past)

    def __call__(self, prefix: Prefix, answer: Tensor) -> StudentOut:
        """Soft tokens [B, M, d] and answer [B, T] ids, padded right."""
        start = self.start(prefix)
        if self.path.merged:
            return self._merged(start, answer)
        hidden = self._pass(start, answer[:, :-1])
        ce = cross_entropy(self._logits(hidden, slice(start.tokens.shape[1] - 1, None)), answer)
        first = self._logits(self._pass(start), -1)
        early, _ = self._early(start, answer)
        distilled, states = self._early(start, answer)
        targets = answer[:, : self.early_tokens]
        return StudentOut(
            ce,
            cross_entropy(first, answer[:, 0]),
            cross_entropy(early, targets),
            distilled,
            first.detach(),
            states,
        )

    def _merged(self, start: Prefix, answer: Tensor) -> StudentOut:
        """One pass: position P-1+j gives everything that any loss wants of y_j."""
        first = start.tokens.shape[1] - 1
        read = slice(first, first + answer.shape[1])
        states: list[Tensor] | None = [] if self.path.keep_states else None
        rows = Rows(read) if self.path.pruned else None
        # The last answer token is not given: nothing is predicted from it.
        hidden = self._pass(start, answer[:, :-1], rows=rows, states=states)
        hidden, inside = (hidden, slice(None)) if self.path.pruned else (hidden, read)
        logits = self._logits(hidden, inside)
        ce, early_logits = cross_entropy(logits, answer), logits[:, : self.early_tokens]
        kept = self._early_states(states or [], first, pruned_last=self.path.pruned)
        return StudentOut(
            ce, ce[:, 0], ce[:, : self.early_tokens], early_logits, early_logits[:, 0].detach(), kept
        )

    def _early_states(self, states: list[Tensor], first: int, pruned_last: bool) -> list[Tensor]:
        last = len(self.lm.layers) - 1
        kept = []
        for number, state in enumerate(states):
            offset = 0 if pruned_last and number == last else first
            kept.append(state[:, offset : offset + self.early_tokens])
        return kept

    def _pass(
        self,
        start: Prefix,
        ids: Tensor | None = None,
        *,
        rows: Rows | None = None,
        keep: KeyValues | None = None,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """Hidden states [B, S, d] of the prefix and the answer tokens `ids` [B, t] after it."""
        x = start.tokens if ids is None else torch.cat((start.tokens, self.lm.embed(ids)), dim=1)
        self._counts["student_passes"] += 1
        self._counts["student_positions"] += x.shape[0] * x.shape[1]
        return self._run(x, start.past, rows=rows, keep=keep, states=states)

    def _run(self, x: Tensor, past: KeyValues | None, **more: Any) -> Tensor:
        """Hidden states of tokens behind keys and values."""
        return self.lm.run(x, AttentionContext(past), lora=self.lora, **more)

    def _logits(self, hidden: Tensor, read: slice | int) -> Tensor:
        """Logits [B, T, V] of the positions `read`, or [B, V] of one."""
        if self.path.logits == "all":
            return self.lm.logits(hidden)[:, read]
        return self.lm.logits(hidden[:, read])

    def _early(self, start: Prefix, answer: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits [B, K, V] of the early tokens, and the states that they came from."""
        ways: dict[str, Callable[[Prefix, Tensor], tuple[Tensor, list[Tensor]]]] = {
            "sequential": self._sequential,
            "kv": self._with_kept_states,
            "batched": self._batched,
        }
        return ways[self.path.k_loss](start, answer)

    def _states(self) -> list[Tensor] | None:
        return [] if self.path.keep_states else None

    def _sequential(self, start: Prefix, answer: Tensor) -> tuple[Tensor, list[Tensor]]:
        """A whole pass for each token."""
        logits, columns = [], []
        for t in range(self.early_tokens):
            states = self._states()
            logits.append(self._logits(self._pass(start, answer[:, :t], states=states), -1))
            columns.append([state[:, -1] for state in states or []])
        return torch.stack(logits, dim=1), [torch.stack(layer, dim=1) for layer in zip(*columns, strict=True)]

    def _with_kept_states(self, start: Prefix, answer: Tensor) -> tuple[Tensor, list[Tensor]]:
        """A pass for the prefix, then one position at a time on its keys and values."""
        held, states = list[tuple[Tensor, Tensor]](), self._states()
        logits = [self._logits(self._pass(start, keep=held, states=states), -1)]
        columns = [[state[:, -1] for state in states or []]]
        for t in range(1, self.early_tokens):
            past, held, states = held, list[tuple[Tensor, Tensor]](), self._states()
            x = self.lm.embed(answer[:, t - 1 : t])
            self._counts["student_passes"] += 1
            self._counts["student_positions"] += x.shape[0]
            hidden = self._run(x, past, keep=held, states=states)
            logits.append(self._logits(hidden, -1))
            columns.append([state[:, -1] for state in states or []])
        return torch.stack(logits, dim=1), [torch.stack(layer, dim=1) for layer in zip(*columns, strict=True)]

    def _batched(self, start: Prefix, answer: Tensor) -> tuple[Tensor, list[Tensor]]:
        """One pass for all early tokens."""
        first, states = start.tokens.shape[1] - 1, self._states()
        hidden = self._pass(start, answer[:, : self.early_tokens - 1], states=states)
        return self._logits(hidden, slice(first, None)), [state[:, first:] for state in states or []]
