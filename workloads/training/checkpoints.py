"""Saving the state of a training, in the loop or in a thread."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def write(state: Mapping[str, Any], file: Path) -> None:
    """Write `state` atomically to `file`: an interrupted write keeps the previous checkpoint."""
    partial = file.with_name(file.name + ".partial")
    torch.save(state, partial)
    partial.replace(file)


class SyncWriter:
    """The training waits until the file is written."""

    def __init__(self) -> None:
        self.written = 0
        self.in_background = 0

    def save(self, state: Mapping[str, Any], file: Path) -> None:
        """Write `state` to `file` now."""
        write(state, file)
        self.written += 1

    def flush(self) -> None:
        """Wait until everything saved is on disk; raise an error of writing it."""

    def close(self) -> None:
        """Flush and stop."""


class AsyncWriter(SyncWriter):
    """The training waits only for a copy of the state; a thread writes it.

    At most one copy waits or is written: a slow disk slows the training down instead of filling memory. An
    error of the thread is raised by the next `save`, `flush` or `close`. When Python ends, the pool finishes
    its last write.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, state: Mapping[str, Any], file: Path) -> None:
        """Copy `state`; the thread writes the copy to `file`."""
        self.flush()
        copied = snapshot(state)
        copies_done = None
        if torch.cuda.is_initialized():
            copies_done = torch.cuda.Event()
            copies_done.record()
        self._pending = self._thread.submit(_write_copied, copied, file, copies_done)
        self.in_background += 1

    def flush(self) -> None:
        """Wait for the pending write; raise its error."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()
            self.written += 1

    def close(self) -> None:
        """Flush, then end the thread, even if the flush raises."""
        try:
            self.flush()
        finally:
            self._thread.shutdown()


WRITERS: dict[str, Callable[[], SyncWriter]] = {"sync": SyncWriter, "async": AsyncWriter}
"""Makes the writer of each level of the toggle `checkpoint`."""


def error_of(
    writer: SyncWriter, save: Callable[[], Mapping[str, Any]], model: nn.Module, file: Path
) -> float:
    """Largest parameter difference of a checkpoint written during training. Leaves `model` as it was."""
    before = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}
    state = save()
    kept = snapshot(state)
    writer.save(state, file)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    writer.flush()
    saved = torch.load(file, map_location="cpu", weights_only=True)["model"]
    model.load_state_dict(kept["model"])
    return torch.stack([(saved[name] - value).abs().max() for name, value in before.items()]).max().item()


def snapshot(value: Any) -> Any:
    """A copy of nested dictionaries, lists and tensors on the host, which no later update changes.

    ``tensor.cpu()`` is not enough: it returns a CPU tensor itself, which the optimiser may change before it
    is written. Copies from a CUDA device go to pinned memory without waiting; record an event after them, and
    synchronise it before reading.
    """
    if isinstance(value, Tensor):
        return value.detach().to("cpu", non_blocking=True) if value.is_cuda else value.detach().clone()
    if isinstance(value, Mapping):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(snapshot(item) for item in value)
    return copy.deepcopy(value)


def _write_copied(state: Mapping[str, Any], file: Path, copies_done: torch.cuda.Event | None) -> None:
    if copies_done is not None:
        copies_done.synchronize()
    write(state, file)
