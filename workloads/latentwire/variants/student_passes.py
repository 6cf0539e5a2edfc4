"""The student's passes: how often the prefix is computed, and where the head and the last layer are applied.

All give the same numbers: y_j is predicted at position P-1+j of ``[BOS?][latents][anchor][y_0 .. ]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads.api import Toggle
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.latentwire.maths.frozen import Model
    from perfsweep.workloads.latentwire.maths.losses import StudentOut
    from perfsweep.workloads.latentwire.maths.passes import AttentionContext, Prefix, Rows


class EarlyByKeptStates(Part):
    """A pass for the prefix, then one position at a time on its keys and values."""

    def early(self, model: Model, start: Prefix, answer: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits [B, K, V] of the early tokens, and the states that they came from."""
        import torch

        held, states = list[tuple[torch.Tensor, torch.Tensor]](), self.states()
        hidden = self.student_pass(model, start, keep=held, states=states)
        logits, columns = [self.student_logits(model, hidden, -1)], [[s[:, -1] for s in states or []]]
        for t in range(1, self.sizes.early_tokens):
            past, held, states = held, list[tuple[torch.Tensor, torch.Tensor]](), self.states()
            x = model.lm.embed(answer[:, t - 1 : t])
            hidden = self.student_run(model, x, past, keep=held, states=states)
            logits.append(self.student_logits(model, hidden, -1))
            columns.append([state[:, -1] for state in states or []])
        return torch.stack(logits, dim=1), [torch.stack(layer, dim=1) for layer in zip(*columns, strict=True)]


class EarlyTogether(Part):
    """One pass for all early tokens."""

    def early(self, model: Model, start: Prefix, answer: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits [B, K, V] of the early tokens, and the states that they came from."""
        first, states = start.tokens.shape[1] - 1, self.states()
        hidden = self.student_pass(model, start, answer[:, : self.sizes.early_tokens - 1], states=states)
        return self.student_logits(model, hidden, slice(first, None)), [s[:, first:] for s in states or []]


class Merged(Part):
    """One pass for all losses: position P-1+j gives everything that any of them wants of y_j."""

    def ask(self, model: Model, prefix: Prefix, answer: Tensor) -> StudentOut:
        """Soft tokens [B, M, d] and answer [B, T] ids, padded right."""
        from perfsweep.workloads.latentwire.maths.losses import StudentOut, cross_entropy

        start, early = self.around(model, prefix), self.sizes.early_tokens
        first = start.tokens.shape[1] - 1
        # The last answer token is not given: nothing is predicted from it.
        read = slice(first, first + answer.shape[1])
        logits, states = self.answered(model, start, answer[:, :-1], read)
        ce, early_logits = cross_entropy(logits, answer), logits[:, :early]
        return StudentOut(ce, ce[:, 0], ce[:, :early], early_logits, early_logits[:, 0].detach(), states)

    def answered(self, model: Model, start: Prefix, ids: Tensor, read: slice) -> tuple[Tensor, list[Tensor]]:
        """Logits [B, T, V] of the positions `read`, and states of the early ones."""
        states = self.states()
        logits = self.student_logits(model, self.student_pass(model, start, ids, states=states), read)
        early = slice(read.start, read.start + self.sizes.early_tokens)
        return logits, [state[:, early] for state in states or []]


class LogitsWhereRead(Part):
    """The head is applied to positions that are read."""

    def student_logits(self, model: Model, hidden: Tensor, read: slice | int) -> Tensor:
        """Logits [B, T, V] of the positions `read`, or [B, V] of one."""
        return model.lm.logits(hidden[:, read])


class Pruned(Part):
    """The last layer computes queries and MLP for positions that are read, of student and teacher."""

    def answered(self, model: Model, start: Prefix, ids: Tensor, read: slice) -> tuple[Tensor, list[Tensor]]:
        """Logits [B, T, V] of the positions `read`, and states of the early ones."""
        from perfsweep.workloads.latentwire.maths.passes import Rows

        states, early, last = self.states(), self.sizes.early_tokens, len(model.lm.layers) - 1
        hidden = self.student_pass(model, start, ids, rows=Rows(read), states=states)
        firsts = [0 if number == last else read.start for number in range(len(states or []))]
        kept = [s[:, first : first + early] for s, first in zip(states or [], firsts, strict=True)]
        return self.student_logits(model, hidden, slice(None)), kept

    def read(
        self, model: Model, x: Tensor, context: AttentionContext, rows: Rows
    ) -> tuple[Tensor, list[Tensor]]:
        """As the teachers' that read where it is needed."""
        states, last = self.states(), len(model.lm.layers) - 1
        hidden = model.lm.run(x, context, rows=rows, states=states)
        return hidden, [s if number == last else rows.of(s) for number, s in enumerate(states or [])]


VARIANTS = (
    Variant(
        Toggle(
            "k_loss",
            choices("sequential", "kv", "batched", witness="student_positions"),
            "early answer tokens by a pass each, with kept keys and values, or in one pass",
            "6 and 8",
        ),
        {"kv": EarlyByKeptStates, "batched": EarlyTogether},
    ),
    Variant(
        Toggle(
            "passes",
            choices("separate", "merged", requires={"k_loss": ("batched",)}, witness="student_passes"),
            "a student pass for each loss, or one for all",
        ),
        {"merged": Merged},
    ),
    Variant(
        Toggle(
            "logits",
            choices("all", "slice", witness="head_rows"),
            "the head on all positions, or on the answer",
        ),
        {"slice": LogitsWhereRead},
    ),
    Variant(
        Toggle(
            "last_block",
            choices(
                "full", "pruned", requires={"logits": ("slice",), "passes": ("merged",)}, witness="lm_flops"
            ),
            "the last block on all positions, or on positions that are read",
        ),
        {"pruned": Pruned},
    ),
)
