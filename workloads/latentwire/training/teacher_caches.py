"""Teachers' caches, filled before training."""

from __future__ import annotations

import time

import torch

from perfsweep.workloads.latentwire.data.batches import Collator, Shape
from perfsweep.workloads.latentwire.data.corpus import Corpus
from perfsweep.workloads.latentwire.maths.objective import Objective


def fill_caches(objective: Objective, corpus: Corpus, shape: Shape, device: torch.device) -> None:
    """Compute what the teachers' caches lack, and note what it cost.

    Caches belong to the sweep and are shared by its trials: the first trial builds, the others wait.
    """
    for number, model in objective.models.items():
        cache = model.teacher.cache
        if cache is None or cache.complete:
            continue
        with cache.building():
            missing = cache.missing(range(len(corpus)))
            started = time.perf_counter()
            for first in range(0, len(missing), shape.micro):
                rows = missing[first : first + shape.micro]
                window = Collator(corpus, shape.with_micro(len(rows)).alone()).window(rows)
                for piece in window.pieces:
                    model.teacher.prepare(piece.map(lambda tensor: tensor.to(device)).models[number].prompts)
            if missing:
                cache.note_cost(time.perf_counter() - started)
