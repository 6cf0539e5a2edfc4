"""The teacher: the same frozen model reading the text, asked for the early answer tokens.

``recompute`` runs the whole prompt in chunks of four rows with logits everywhere; the other levels read only
what is needed, share the constant beginning of the prompt, or keep results on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.data.batches import Prompts
from perfsweep.workloads.latentwire.data.cache import TeacherCache
from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.maths.losses import divergence
from perfsweep.workloads.latentwire.maths.passes import AttentionContext, KeyValues, Rows

CHUNK = 4


@dataclass
class Given:
    """What distillation compares with: logits [B, K, V], and states."""

    logits: Tensor
    states: list[Tensor]

    def distance(self, student: Tensor) -> Tensor:
        """Divergence [B, K] of the student's logits [B, K, V]."""
        return divergence(student, self.logits.to(student.dtype))


class Teacher:
    """A frozen model's answer distribution for prompts.

    `header` [Sh] are ids that all scaffolds begin with; only levels that share it use it.
    """

    def __init__(
        self,
        lm: CausalLM,
        level: str,
        header: Tensor,
        *,
        pruned: bool = False,
        states: bool = False,
        context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.lm = lm
        self.level = level
        self.pruned = pruned
        self.keep_states = states
        self.cache: TeacherCache | None = None
        self._context = context
        self._header = header
        self._shared: KeyValues | None = None
        self._counts = lm.chosen.counts

    @torch.no_grad()
    def __call__(self, prompts: Prompts) -> Given:
        """Distributions for a piece."""
        with self._context():
            if self.level == "recompute":
                return self._whole(prompts)
            if self.cache is not None:
                return self._cached(prompts)
            hidden, states = self.hidden(prompts)
            return Given(self._head(hidden), states)

    @torch.no_grad()
    def prepare(self, prompts: Prompts) -> None:
        """Compute and keep the rows that the cache lacks."""
        assert self.cache is not None
        missing = self.cache.missing(prompts.index)
        if missing:
            with self._context():
                self._fill(prompts, missing)

    def _head(self, hidden: Tensor) -> Tensor:
        self._counts["teacher_head_rows"] += hidden.shape[0] * hidden.shape[1]
        return self.lm.logits(hidden)

    def _whole(self, prompts: Prompts) -> Given:
        """Chunks of four rows, logits at every position."""
        chunks = []
        for first in range(0, len(prompts.lengths), CHUNK):
            rows = slice(first, first + CHUNK)
            longest = max(prompts.lengths[rows])
            at = prompts.positions[rows]
            states: list[Tensor] | None = [] if self.keep_states else None
            self._count(prompts.lengths[rows], longest)
            hidden = self.lm.run(self.lm.embed(prompts.ids[rows, :longest]), states=states)
            logits = Rows(at).of(self._head(hidden))
            chunks.append((logits, [Rows(at).of(state) for state in states or []]))
        layers = zip(*(states for _, states in chunks), strict=True)
        return Given(torch.cat([logits for logits, _ in chunks]), [torch.cat(layer) for layer in layers])

    def _count(self, lengths: tuple[int, ...], longest: int) -> None:
        self._counts["teacher_rows"] += len(lengths)
        self._counts["teacher_positions"] += len(lengths) * longest
        self._counts["padded_positions"] += len(lengths) * longest - sum(lengths)

    @torch.no_grad()
    def hidden(self, prompts: Prompts) -> tuple[Tensor, list[Tensor]]:
        """Final hidden states [B, K, d] at the predictive positions, and the first layers' there."""
        past, shared = self._past()
        longest = max(prompts.lengths)
        at = prompts.positions - shared
        states: list[Tensor] | None = [] if self.keep_states else None
        self._count(tuple(n - shared for n in prompts.lengths), longest - shared)
        x = self.lm.embed(prompts.ids[:, shared:longest])
        rows = Rows(at) if self.pruned else None
        hidden = self.lm.run(x, AttentionContext(past), rows=rows, states=states)
        last = len(self.lm.layers) - 1
        kept = [s if self.pruned and i == last else Rows(at).of(s) for i, s in enumerate(states or [])]
        return hidden if self.pruned else Rows(at).of(hidden), kept

    def _past(self) -> tuple[KeyValues | None, int]:
        """Keys and values of the shared header, computed on first use, and its length."""
        if self.level == "slice" or len(self._header) == 0:
            return None, 0
        if self._shared is None:
            held: KeyValues = []
            self.lm.run(self.lm.embed(self._header).unsqueeze(0), keep=held)
            self._shared = held
        return self._shared, len(self._header)

    def _cached(self, prompts: Prompts) -> Given:
        """From the cache; rows that are not there yet are computed and kept."""
        assert self.cache is not None
        if missing := self.cache.missing(prompts.index):
            self._fill(prompts, missing)
        return Given(self._head(self.cache.hidden(prompts.numbers)), [])

    def _fill(self, prompts: Prompts, missing: list[int]) -> None:
        assert self.cache is not None
        where = torch.tensor(missing, device=prompts.ids.device)
        some = Prompts(
            prompts.ids[where],
            prompts.positions[where],
            prompts.numbers[where],
            tuple(prompts.lengths[i] for i in missing),
            tuple(prompts.index[i] for i in missing),
        )
        hidden, _ = self.hidden(some)
        self.cache.keep(some.index, hidden)
