"""The windows of a training: how they are cut, and how they reach the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch

from perfsweep.workloads.api import Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.batches import (
    Collator,
    Numbers,
    Resident,
    Shape,
    Window,
    load_windows,
)
from perfsweep.workloads.latentwire.data.corpus import Corpus
from perfsweep.workloads.latentwire.training.moving import Mover, Picker, Wants, counted
from perfsweep.workloads.latentwire.training.ranks import Ranks
from perfsweep.workloads.training import prefetch
from perfsweep.workloads.training.kept_batches import KeptBatches, repeated
from perfsweep.workloads.training.toggles import DATA


def window_shape(
    config: LatentWireConfig, levels: Levels, ranks: Ranks, examples: int, dtype: torch.dtype
) -> Shape:
    """How windows are cut, in one piece each.

    Raises
    ------
    ConfigError
        There are fewer examples than a window has rows, or fewer rows than ranks.
    """
    sizes, effective = config.sizes, int(levels["effective_batch"])
    world, rank = (ranks.world, ranks.rank) if ranks.splits_rows else (1, 0)
    if effective > examples:
        raise ConfigError(
            f"toggles.effective_batch={effective} is more than the {examples} examples of workload.data that"
            " can be trained on; lower it"
        )
    if effective < world:
        raise ConfigError(
            f"toggles.effective_batch={effective} leaves ranks without rows: use at least {world}"
        )
    return Shape(
        effective=effective,
        micro=effective,
        answer_tokens=sizes.answer_tokens,
        early_tokens=sizes.early_tokens,
        bucket=str(levels["bucket"]),
        trim=levels["encoder_trim"] == "batch_max",
        trim_answers=levels["answer_trim"] == "batch_max",
        full_bytes=sizes.max_bytes,
        rank=rank,
        world=world,
        static=levels["compile"] != "off",
        dtype=dtype,
    )


class Windows:
    """Windows without end, from the step given to `start` on.

    Parameters
    ----------
    wants : whether teacher prompts are needed still; rows that are on the device leave them out otherwise
    """

    def __init__(
        self,
        corpus: Corpus,
        shape: Shape,
        levels: Levels,
        device: torch.device,
        wants: Wants,
        counts: Counter[str],
    ) -> None:
        self.corpus, self.shape = corpus, shape
        self.collator = Collator(corpus, shape)
        self._levels, self._device, self._counts = levels, device, counts
        self._picker: Picker | None = None
        if levels["resident_data"] == "on":
            resident = Resident.of(corpus, shape, device)
            self._picker = Picker(resident, self.collator, device, levels["loader"] == "index", wants, counts)
        self._next: Iterator[Window] = iter(())

    @property
    def per_epoch(self) -> int:
        """Windows of an epoch."""
        return -(-len(self.corpus) // self.shape.effective)

    def start(self, seed: int, step: int) -> None:
        """Begin with the window of `step`."""
        levels, counts = self._levels, self._counts
        numbers = Numbers(self.corpus, self.shape, seed, step)
        if self._picker is not None:
            self._next = self._picker.windows(numbers, step, self.per_epoch)
            return
        pin = levels["pin_memory"] == "on"
        if levels["loader"] == "dataloader":
            workers = int(levels["num_workers"])
            host = load_windows(self.collator, numbers, workers, pin)
            host = counted(host, counts, "loader_batches", *(["worker_batches"] if workers else []))
        else:
            host = map(self.collator.window, numbers)
        if levels.get(DATA.name) == "cached":
            host = repeated(host, KeptBatches(Window.tensors, counts))
        self._next = map(Mover(self._device, levels["non_blocking"] == "on", pin, counts), host)
        if levels["prefetch"] == "stream":
            self._next = prefetch.ahead(self._next, self._device, counts, Window.tensors)

    def __next__(self) -> Window:
        return next(self._next)

    def of(self, numbers: list[int]) -> Window:
        """The window of some rows, on the device; nothing is counted."""
        if self._picker is not None:
            return self._picker.of_list(numbers)
        return Mover(self._device, False, False, Counter())(self.collator.window(numbers))

    def close(self) -> None:
        """End loader processes: they go with the last reference to the loader."""
        self._next = iter(())
