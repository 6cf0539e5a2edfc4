"""The order of fetching, waiting and computing on two streams, of a device that only takes note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from perfsweep.workloads.training.loading import ahead

DEVICE = torch.device("cuda", 1)


class Stream:
    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def wait_stream(self, other: Stream) -> None:
        self.said.append(f"{self.name} waits for {other.name}")


class Values:
    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def record_stream(self, stream: Stream) -> None:
        self.said.append(f"{self.name} is kept for {stream.name}")


def test_the_next_batch_is_fetched_before_this_one_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    copies, computing = Stream("copies", said), Stream("computing", said)
    current = [computing]

    def made(device: Any) -> Stream:
        assert device == DEVICE
        return copies

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "Stream", made)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[-1])

    def batches() -> Iterator[list[Values]]:
        for number in range(3):
            said.append(f"{number} is fetched on {current[-1].name}")
            yield [Values(f"{number}{part}", said) for part in "ab"]

    counts = Counter[str]()
    batches_ahead = ahead(batches(), DEVICE, counts, lambda batch: batch)  # type: ignore[arg-type, return-value]
    for number in range(2):
        assert [one.name for one in next(batches_ahead)] == [f"{number}a", f"{number}b"]
        said.append(f"{number} is computed")
    assert said == [
        "0 is fetched on copies",
        "computing waits for copies",
        "0a is kept for computing",
        "0b is kept for computing",
        "1 is fetched on copies",
        "0 is computed",
        "computing waits for copies",
        "1a is kept for computing",
        "1b is kept for computing",
        "2 is fetched on copies",
        "1 is computed",
    ]
    assert counts == {"prefetched_batches": 2}
