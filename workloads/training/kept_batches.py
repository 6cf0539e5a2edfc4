"""The first batches of a loader, kept in memory and repeated: a loader that never waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from torch import Tensor

from perfsweep.workloads.errors import UnsupportedHere

MOST_BATCHES = 32
MOST_BYTES = 2**30

T = TypeVar("T")


class KeptBatches(Generic[T]):
    """Batches of a loader that are kept unchanged.

    Parameters
    ----------
    tensors : gives all tensors of a batch
    counts : counts the witness ``kept_batches``: batches that were added, or given again
    """

    def __init__(self, tensors: Callable[[T], Iterable[Tensor]], counts: Counter[str]) -> None:
        self._tensors, self._counts = tensors, counts
        self._batches: list[tuple[T, int]] = []
        self._bytes = 0
        self.complete = False

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: T) -> None:
        """Keep one more batch.

        Raises
        ------
        UnsupportedHere
            The batch can be read only once.
        """
        if _is_read_once(batch):
            raise UnsupportedHere(
                "data=cached: the loader gives batches that can be read once only, such as a generator; let"
                " its collate_fn return tensors"
            )
        self._batches.append((batch, self._version(batch)))
        self._bytes += sum(tensor.nbytes for tensor in self._tensors(batch))
        self._counts["kept_batches"] += 1
        self.complete = len(self._batches) >= MOST_BATCHES or self._bytes >= MOST_BYTES

    def again(self, number: int) -> T:
        """Give the batch of this number again; after the last batch comes the first.

        Raises
        ------
        UnsupportedHere
            An earlier use has changed the batch.
        """
        batch, version = self._batches[number % len(self._batches)]
        if self._version(batch) != version:
            raise UnsupportedHere(
                "data=cached: the training changes its batches in place, so that they cannot be given again;"
                " let it work on copies"
            )
        self._counts["kept_batches"] += 1
        return batch

    def _version(self, batch: T) -> int:
        """How often the tensors of a batch were written to."""
        return sum(0 if tensor.is_inference() else tensor._version for tensor in self._tensors(batch))


def repeated(batches: Iterator[T], kept: KeptBatches[T]) -> Iterator[T]:
    """Give the first batches, then repeat them without end; the loader ends after the first pass."""
    for batch in batches:
        kept.add(batch)
        yield batch
        if kept.complete:
            break
    del batches  # the last reference: worker processes end with it
    number = 0
    while len(kept):
        yield kept.again(number)
        number += 1


def _is_read_once(batch: Any) -> bool:
    if isinstance(batch, Mapping):
        return any(map(_is_read_once, batch.values()))
    if isinstance(batch, (tuple, list)):
        return any(map(_is_read_once, batch))
    return hasattr(batch, "__next__")
