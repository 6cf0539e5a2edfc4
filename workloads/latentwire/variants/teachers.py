"""The teacher's passes: read where it is needed, with a shared beginning of all prompts, or kept on disk."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from perfsweep.workloads.api import Level, Levels, Toggle
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.latentwire.data.batches import Prompts
    from perfsweep.workloads.latentwire.data.cache import TeacherCache
    from perfsweep.workloads.latentwire.maths.frozen import Model
    from perfsweep.workloads.latentwire.maths.losses import Given
    from perfsweep.workloads.latentwire.maths.passes import AttentionContext, KeyValues, Rows
    from perfsweep.workloads.latentwire.presets import LMConfig


class ReadWhereNeeded(Part):
    """One pass over all prompts, and the head where answers are predicted."""

    def taught(self, model: Model, prompts: Prompts) -> Given:
        """Distributions for a piece."""
        from perfsweep.workloads.latentwire.maths.losses import Given

        hidden, states = self.teacher_hidden(model, prompts)
        return Given(self.teacher_logits(model, hidden), states)

    def teacher_hidden(self, model: Model, prompts: Prompts) -> tuple[Tensor, list[Tensor]]:
        """Final hidden states [B, K, d] at the predictive positions, and the first layers' there."""
        from perfsweep.workloads.latentwire.maths.passes import AttentionContext, Rows

        past, shared = self.beginning(model)
        longest = max(prompts.lengths)
        self.count_teacher(tuple(length - shared for length in prompts.lengths), longest - shared)
        x = model.lm.embed(prompts.ids[:, shared:longest])
        return self.read(model, x, AttentionContext(past), Rows(prompts.positions - shared))

    def beginning(self, model: Model) -> tuple[KeyValues | None, int]:
        """Keys and values that prompts share, and how many positions they are: none."""
        return None, 0

    def read(
        self, model: Model, x: Tensor, context: AttentionContext, rows: Rows
    ) -> tuple[Tensor, list[Tensor]]:
        """Hidden states [B, K, d] of `rows` in a pass that computes all, and the first layers' there."""
        states = self.states()
        hidden = model.lm.run(x, context, states=states)
        return rows.of(hidden), [rows.of(state) for state in states or []]


class SharedHeader(ReadWhereNeeded):
    """Keys and values of what all prompts begin with are computed once, on first use."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.headers: dict[int, tuple[KeyValues | None, int]] = {}

    def beginning(self, model: Model) -> tuple[KeyValues | None, int]:
        """Keys and values of the header, and its length."""
        import torch

        if model.number not in self.headers:
            header = self.corpus.header(model.number)
            ids = torch.tensor(header, device=model.lm.table.device, dtype=torch.long)
            held: KeyValues = []
            if header:
                model.lm.run(model.lm.embed(ids).unsqueeze(0), keep=held)
            self.headers[model.number] = held or None, len(header)
        return self.headers[model.number]


class Cached(SharedHeader):
    """Final hidden states come from a file that belongs to model, rows, K and type; the head is applied."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.caches: dict[int, TeacherCache] = {}

    def model(self, number: int, shape: LMConfig) -> Model:
        """One frozen model with its cache."""
        made = super().model(number, shape)
        self.caches[number] = self.cache_of(made)
        return made

    def prepare_teachers(self) -> None:
        """Compute what the caches lack, unless the first epoch is to pay for it, and note what it cost.

        Caches are shared by the trials of a sweep: the first builds, the others wait.
        """
        if self.config.teacher_fill == "lazy":
            return
        for number, cache in self.caches.items():
            if not cache.complete:
                with cache.building():
                    self._fill_whole(self.models[number], cache)
        self.counts.clear()

    def cache_of(self, model: Model) -> TeacherCache:
        """The cache of this shape, weights as they are stored, tokens, K and type."""
        from perfsweep.workloads.latentwire.data import cache

        lm, early = model.lm, self.sizes.early_tokens
        weights = cache.weights_key([*lm.named_parameters(), *lm.named_buffers()])
        dtype, width = lm.table.dtype, lm.config.d_model
        rows = self.corpus.key(model.number)
        key = cache.key_of(f"{lm.config}/{weights}", rows, early, str(dtype), self.levels["amp"], width)
        folder = self.context.cache_dir / f"latentwire-teacher-{key}"
        return cache.TeacherCache(folder, (len(self.corpus), early, width), dtype)

    def _fill_whole(self, model: Model, cache: TeacherCache) -> None:
        from perfsweep.workloads.latentwire.data.batches import Collator

        missing = cache.missing(range(len(self.corpus)))
        started = time.perf_counter()
        for first in range(0, len(missing), self.shape.micro):
            rows = missing[first : first + self.shape.micro]
            window = Collator(self.corpus, self.shape.with_micro(len(rows)).alone()).window(rows)
            for piece in window.pieces:
                self.prepare(model, piece.map(self.copied).models[model.number].prompts)
        if missing:
            cache.note_cost(time.perf_counter() - started)

    def prepare(self, model: Model, prompts: Prompts) -> None:
        """Compute and keep the rows that the cache lacks."""
        import torch

        with torch.no_grad(), self.autocast():
            self._fill(model, prompts)

    def taught(self, model: Model, prompts: Prompts) -> Given:
        """From the cache; rows that are not there yet are computed and kept."""
        from perfsweep.workloads.latentwire.maths.losses import Given

        self._fill(model, prompts)
        hidden = self.caches[model.number].hidden(prompts.numbers)
        return Given(self.teacher_logits(model, hidden), [])

    def _fill(self, model: Model, prompts: Prompts) -> None:
        import torch

        from perfsweep.workloads.latentwire.data.batches import Prompts

        cache = self.caches[model.number]
        if missing := cache.missing(prompts.index):
            where = torch.tensor(missing, device=prompts.ids.device)
            some = Prompts(
                prompts.ids[where],
                prompts.positions[where],
                prompts.numbers[where],
                tuple(prompts.lengths[i] for i in missing),
                tuple(prompts.index[i] for i in missing),
            )
            cache.keep(some.index, self.teacher_hidden(model, some)[0])

    def wants_prompts(self) -> bool:
        """Whether a cache lacks rows."""
        return not all(cache.complete for cache in self.caches.values())

    def teachers_cost(self) -> float:
        """Seconds that building took, whichever trial built."""
        return sum(cache.cost() for cache in self.caches.values())


def _layer_states(config: Any, levels: Levels) -> str | None:
    return (
        "workload.state_kd=true needs states of several layers, and the cache holds the last"
        if config.state_kd
        else None
    )


VARIANTS = (
    Variant(
        Toggle(
            "teacher",
            (
                Level("recompute"),
                Level("slice", witness="teacher_head_rows"),
                Level("slice_header", witness="teacher_positions"),
                Level(
                    "cache_h",
                    requires={"tokenise": ("pre", "cache")},
                    refused=_layer_states,
                    witness="teacher_rows",
                ),
            ),
            "the teacher's pass: whole, read where needed, with a shared header, or from a cache",
            "8",
        ),
        {"slice": ReadWhereNeeded, "slice_header": SharedHeader, "cache_h": Cached},
    ),
)
