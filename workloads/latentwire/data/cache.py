"""What is prepared once and kept on disk: tokens, and the teacher's results.

Every directory name holds a hash of all that its content depends on: another model, tokenizer, template,
anchor, data set or length finds nothing there. A lock file keeps two processes from building the same thing;
finished files appear by rename.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.errors import RecordError
from perfsweep.workloads.latentwire.data.row_layout import Row


def key_of(*parts: Any) -> str:
    """A short hash of values that have a faithful repr."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def weights_key(tensors: Sequence[tuple[str, Tensor]]) -> str:
    """A hash of named weights: names, shapes, types and contents.

    Only a sample of a large tensor is read, spread over all of it, with its sum: a file of other weights
    differs there.
    """
    sha = hashlib.sha256()
    for name, tensor in tensors:
        flat = tensor.detach().flatten()
        step = max(1, flat.numel() // 4096)
        sample = flat[::step].to("cpu", torch.float64).numpy()
        sha.update(
            f"{name}{tuple(tensor.shape)}{tensor.dtype}{flat.sum(dtype=torch.float64).item()!r}".encode()
        )
        sha.update(sample.tobytes())
    return sha.hexdigest()[:16]


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A hash of a sample of named weights, whatever their type: cheap, and tells models apart."""
    sha = hashlib.sha256()
    for name, tensor in tensors:
        flat = tensor.detach().flatten()
        sample = flat[:: max(1, flat.numel() // 512)].to("cpu", torch.float32).numpy()
        sha.update(f"{name}{tuple(tensor.shape)}".encode() + sample.tobytes())
    return sha.hexdigest()[:16]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; other processes wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def save_rows(folder: Path, rows: Sequence[Row]) -> None:
    """Write rows as one file of ids and one of offsets: scaffold and answer take turns."""
    parts = [part for row in rows for part in (row.scaffold, row.answer)]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    ids = np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("ids", ids), ("offsets", offsets)):
        _publish(folder / f"{name}.npy", array)


def _publish(file: Path, array: np.ndarray) -> None:
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with draft.open("wb") as stream:
        np.save(stream, array)
    draft.replace(file)


def load_rows(folder: Path, expected: int) -> list[Row] | None:
    """Rows that `save_rows` wrote, or None where there are none.

    Raises
    ------
    RecordError
        The files do not belong together.
    """
    if not (folder / "offsets.npy").exists():
        return None
    try:
        ids, offsets = np.load(folder / "ids.npy", mmap_mode="r"), np.load(folder / "offsets.npy")
    except (OSError, ValueError, EOFError) as error:
        raise RecordError(
            f"token cache {folder} cannot be read ({error}); delete the folder and start again"
        ) from error
    if len(offsets) != 2 * expected + 1 or offsets[-1] != len(ids):
        raise RecordError(
            f"token cache {folder} does not hold {expected} examples; delete the folder and start again"
        )
    cut = [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]
    return [Row(scaffold, answer) for scaffold, answer in zip(cut[::2], cut[1::2], strict=True)]


class TeacherCache:
    """The teacher's last hidden states [N, K, d], and which rows are there.

    Parameters
    ----------
    folder : named after model, tokens, K and type
    shape : (N, K, d)
    dtype : of hidden states

    Attributes
    ----------
    complete : whether every row is there
    """

    def __init__(self, folder: Path, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
        self.folder = folder
        self._dtype = dtype
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            self._values = self._map("values", shape, dtype)
            self._done = self._map("done", (shape[0],), torch.bool)
        self._held: Tensor | None = None
        self.complete = bool(self._done.all())

    def _map(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A memory-mapped tensor; a new file is all zeros.

        Raises
        ------
        RecordError
            A file of another size is there.
        """
        file = self.folder / f"{name}.bin"
        size = int(np.prod(shape)) * dtype.itemsize
        if not file.exists():
            with file.with_suffix(".draft").open("wb") as draft:
                draft.truncate(size)
            file.with_suffix(".draft").replace(file)
        if file.stat().st_size != size:
            raise RecordError(
                f"teacher cache {file} has {file.stat().st_size} bytes, not {size}; delete {self.folder}"
            )
        return torch.from_file(str(file), shared=True, size=int(np.prod(shape)), dtype=dtype).view(shape)

    @contextmanager
    def building(self) -> Iterator[None]:
        """Hold the cache's lock; another process may have finished meanwhile."""
        with locked(self.folder):
            self.complete = bool(self._done.all())
            yield

    def missing(self, index: Sequence[int]) -> list[int]:
        """Places in `index` whose rows are not there yet."""
        if self.complete:
            return []
        return [place for place, number in enumerate(index) if not self._done[number]]

    def keep(self, index: Sequence[int], hidden: Tensor) -> None:
        """Store rows [n, K, d]."""
        where = torch.tensor(index)
        self._values[where] = hidden.detach().to("cpu", self._dtype)
        # Rows first, then their marks: a process that dies between the two leaves rows to be computed again.
        self._done[where] = True
        self.complete = bool(self._done.all())

    def hidden(self, numbers: Tensor) -> Tensor:
        """Rows [n, K, d] of examples [n], on the device of `numbers`; all stay there once complete."""
        if not self.complete:
            return self._values[numbers.cpu()].to(numbers.device)
        if self._held is None:
            self._held = self._values.to(numbers.device, copy=True)
        return self._held.index_select(0, numbers)

    def note_cost(self, seconds: float) -> None:
        """Remember what building cost, for every process that finds it built."""
        draft = self.folder / f"cost.{os.getpid()}"
        draft.write_text(json.dumps({"seconds": seconds, "built": time.time()}))
        draft.replace(self.folder / "cost.json")

    def cost(self) -> float:
        """Seconds that building took; 0 where it was not measured."""
        try:
            return float(json.loads((self.folder / "cost.json").read_text())["seconds"])
        except (OSError, ValueError, KeyError):
            return 0.0
