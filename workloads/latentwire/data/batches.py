"""Windows: the rows of one optimiser step, cut into pieces, on their way to the device.

Dimensions: B rows of a piece, L bytes, T answer tokens, K early tokens, S teacher prompt tokens.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from perfsweep.workloads.latentwire.data.corpus import Corpus
from perfsweep.workloads.latentwire.data.row_layout import Row
from perfsweep.workloads.latentwire.presets import PAD_BYTE
from perfsweep.workloads.training.loading import data_loader

GLOBAL_BLOCK = 8  # windows whose rows are sorted together by bucket=global


@dataclass(frozen=True)
class Prompts:
    """Teacher rows of a piece.

    Attributes
    ----------
    ids : [B, S + K - 1] scaffold and early answer, padded right
    positions : [B, K] predictive positions
    numbers : [B] numbers of the examples
    lengths : tokens of each row, on the host
    index : numbers of the examples, on the host
    """

    ids: Tensor
    positions: Tensor
    numbers: Tensor
    lengths: tuple[int, ...]
    index: tuple[int, ...]


@dataclass
class ModelPiece:
    """One model's share of a piece: answer [B, T], weights [3, B, T] of the window, the teacher's prompts."""

    answer: Tensor
    weights: Tensor
    prompts: Prompts


@dataclass
class Piece:
    """Rows that go through the model together: source [B, L] bytes, their numbers [B] on host and device."""

    source: Tensor
    numbers: Tensor
    index: tuple[int, ...]
    models: list[ModelPiece]

    def __len__(self) -> int:
        return len(self.index)

    def map(self, change: Callable[[Tensor], Tensor]) -> Piece:
        """The same piece with every tensor changed."""
        models = [
            ModelPiece(
                change(one.answer),
                change(one.weights),
                dataclasses.replace(
                    one.prompts,
                    ids=change(one.prompts.ids),
                    positions=change(one.prompts.positions),
                    numbers=change(one.prompts.numbers),
                ),
            )
            for one in self.models
        ]
        return Piece(change(self.source), change(self.numbers), self.index, models)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors."""
        yield from (self.source, self.numbers)
        for one in self.models:
            prompts = one.prompts
            yield from (one.answer, one.weights, prompts.ids, prompts.positions, prompts.numbers)

    def pin_memory(self) -> Piece:
        """As the loader's pinning calls it."""
        return self.map(lambda tensor: tensor.pin_memory())

    def rows(self, first: int, end: int) -> Piece:
        """Some of the rows; widths stay."""
        models = []
        for one in self.models:
            prompts = one.prompts
            cut = Prompts(
                prompts.ids[first:end],
                prompts.positions[first:end],
                prompts.numbers[first:end],
                prompts.lengths[first:end],
                prompts.index[first:end],
            )
            models.append(ModelPiece(one.answer[first:end], one.weights[:, first:end], cut))
        return Piece(self.source[first:end], self.numbers[first:end], self.index[first:end], models)


@dataclass
class Window:
    """All pieces of one step on this rank; `examples` counts all ranks', `tokenised` the rows tokenised."""

    pieces: list[Piece]
    examples: int
    tokenised: int = 0
    pinned: bool = False

    def tensors(self) -> Iterator[Tensor]:
        """All tensors of all pieces."""
        return itertools.chain.from_iterable(piece.tensors() for piece in self.pieces)

    def pin_memory(self) -> Window:
        """As the loader's pinning calls it."""
        return dataclasses.replace(self, pieces=[piece.pin_memory() for piece in self.pieces], pinned=True)


@dataclass(frozen=True)
class Shape:
    """How windows are cut: sizes, order of rows, this rank's share, and whether the last one is filled up."""

    effective: int
    micro: int
    answer_tokens: int
    early_tokens: int
    bucket: str = "off"
    trim: bool = False
    trim_answers: bool = False
    full_bytes: int = 512
    rank: int = 0
    world: int = 1
    static: bool = False
    dtype: torch.dtype = torch.float32

    def with_micro(self, rows: int) -> Shape:
        """The same with pieces of other size."""
        return dataclasses.replace(self, micro=rows)

    def answer_width(self, lengths: Iterable[int]) -> int:
        """Answer positions that a piece with these lengths needs: T, or the longest rounded up to four."""
        if not self.trim_answers:
            return self.answer_tokens
        return min(self.answer_tokens, max(self.early_tokens, -(-max(lengths) // 4) * 4))

    def alone(self) -> Shape:
        """The same for one process, whatever the number of rows."""
        return dataclasses.replace(self, rank=0, world=1, static=False)


def epoch_order(n: int, seed: int, epoch: int) -> list[int]:
    """The permutation of an epoch, on the CPU and one for every loader."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(n, generator=generator).tolist()


def epoch_windows(
    lengths: Sequence[int], seed: int, epoch: int, effective: int, bucket: str
) -> list[list[int]]:
    """Numbers of each window's rows; `lengths` in bytes are known without tokenising."""
    order = epoch_order(len(lengths), seed, epoch)
    if bucket == "global":
        rng = random.Random(seed * 1_000_003 + epoch)
        block, windows = effective * GLOBAL_BLOCK, []
        for first in range(0, len(order), block):
            ordered = sorted(order[first : first + block], key=lambda number: (lengths[number], number))
            cut = [ordered[i : i + effective] for i in range(0, len(ordered), effective)]
            rng.shuffle(cut)
            windows += cut
        return windows
    windows = [order[i : i + effective] for i in range(0, len(order), effective)]
    if bucket == "window":
        windows = [sorted(window, key=lambda number: (lengths[number], number)) for window in windows]
    return windows


def share(window: Sequence[int], shape: Shape) -> list[int]:
    """This rank's rows of a window."""
    return list(window[shape.rank :: shape.world])


def padded(rows: Sequence[Sequence[int]], width: int, pad: int) -> Tensor:
    """Rows of ids as [B, width], padded right."""
    out = torch.full((len(rows), width), pad, dtype=torch.long)
    for number, row in enumerate(rows):
        out[number, : len(row)] = torch.tensor(row, dtype=torch.long)
    return out


def source_bytes(texts: Sequence[bytes], width: int) -> Tensor:
    """[B, width] bytes, padded right."""
    return padded([list(text) for text in texts], width, PAD_BYTE)


def prompt_ids(
    rows: Sequence[Row], early_tokens: int, pad: int, width: int | None = None
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Teacher ids [B, S + K - 1], predictive positions [B, K] and lengths.

    Positions follow from each scaffold's stored length: counting ids that are no pads would miss every turn
    marker of a tokenizer whose pad is its end of turn.
    """
    lengths = tuple(len(row.scaffold) + early_tokens - 1 for row in rows)
    ids = padded(
        [[*row.scaffold, *row.answer[: early_tokens - 1]] for row in rows], width or max(lengths), pad
    )
    starts = torch.tensor([len(row.scaffold) - 1 for row in rows])
    return ids, starts[:, None] + torch.arange(early_tokens), lengths


class Collator:
    """Windows from rows of a corpus, tensor by tensor."""

    def __init__(self, corpus: Corpus, shape: Shape) -> None:
        self.corpus = corpus
        self.shape = shape

    def window(self, numbers: Sequence[int]) -> Window:
        """The window of these examples."""
        shape, before = self.shape, self.corpus.counts["rows_tokenised"]
        own = share(numbers, shape)
        weights = self.weights(numbers)
        pieces = []
        for first in range(0, len(own), shape.micro):
            places = list(range(first, min(first + shape.micro, len(own))))
            pieces.append(self._piece([own[i] for i in places], [w[:, places] for w in weights]))
        return Window(pieces, len(numbers), self.corpus.counts["rows_tokenised"] - before)

    def weights(self, numbers: Sequence[int]) -> list[Tensor]:
        """Each model's loss weights [3, rows of this rank, T], denominators those of all rows."""
        shape, found = self.shape, []
        for model in range(len(self.corpus.layouts)):
            lengths = [self.corpus.answer_length(model, number) for number in numbers]
            weights = term_weights(lengths, shape.answer_tokens, shape.early_tokens)[
                :, shape.rank :: shape.world
            ]
            found.append(torch.from_numpy(np.ascontiguousarray(weights)).to(shape.dtype))
        return found

    def _piece(self, numbers: list[int], weights: list[Tensor]) -> Piece:
        shape = self.shape
        if (
            shape.static and len(numbers) < shape.micro
        ):  # compiled code meets no other shape: rows of weight zero
            missing = shape.micro - len(numbers)
            numbers = numbers + numbers[:1] * missing
            weights = [
                torch.cat((w, torch.zeros_like(w[:, :1]).expand(-1, missing, -1)), dim=1) for w in weights
            ]
        texts = [self.corpus.sources[number] for number in numbers]
        source = source_bytes(texts, max(map(len, texts)) if shape.trim else shape.full_bytes)
        index, numbers_tensor = tuple(numbers), torch.tensor(numbers)
        models = []
        for model, layout in enumerate(self.corpus.layouts):
            rows = [self.corpus.row(model, number) for number in numbers]
            width = shape.answer_width(len(row.answer) for row in rows)
            answer = padded([row.answer for row in rows], width, layout.tokenizer.pad)
            ids, positions, lengths = prompt_ids(rows, shape.early_tokens, layout.tokenizer.pad)
            prompts = Prompts(ids, positions, numbers_tensor, lengths, index)
            models.append(ModelPiece(answer, weights[model][..., :width], prompts))
        return Piece(source, numbers_tensor, index, models)


class Numbers:
    """Windows' row numbers without end, from step `start` on."""

    def __init__(self, corpus: Corpus, shape: Shape, seed: int, start: int = 0) -> None:
        self._lengths = [len(source) for source in corpus.sources]
        self._shape, self._seed, self._start = shape, seed, start

    def epoch(self, epoch: int) -> list[list[int]]:
        """All windows of an epoch."""
        return epoch_windows(self._lengths, self._seed, epoch, self._shape.effective, self._shape.bucket)

    def __iter__(self) -> Iterator[list[int]]:
        per_epoch = -(-len(self._lengths) // self._shape.effective)
        epoch, skip = divmod(self._start, per_epoch)
        while True:
            yield from self.epoch(epoch)[skip:]
            epoch, skip = epoch + 1, 0


class _Windows(Dataset[Window]):
    def __init__(self, collator: Collator) -> None:
        self._collator = collator

    def __getitem__(self, numbers: Any) -> Window:
        return self._collator.window(numbers)


def load_windows(collator: Collator, numbers: Numbers, workers: int, pinned: bool) -> Iterator[Window]:
    """Windows from a DataLoader."""
    # Forked workers share tokenizers and data; they never touch the device.
    loader = data_loader(_Windows(collator), workers=workers, pinned=pinned, sampler=numbers, batch_size=None)
    return iter(loader)


@dataclass
class Resident:
    """All rows on the device, padded once; lengths on the host, so that trimming needs no read.

    Attributes
    ----------
    source : [N, L]
    answers, prompts, positions : per model [N, T], [N, S + K - 1], [N, K]
    lengths, answer_lengths : per model, tokens of each teacher row and of each answer
    widths : bytes of each source
    """

    source: Tensor
    answers: list[Tensor]
    prompts: list[Tensor]
    positions: list[Tensor]
    lengths: list[tuple[int, ...]]
    answer_lengths: list[tuple[int, ...]]
    widths: list[int]

    @staticmethod
    def of(corpus: Corpus, shape: Shape, device: torch.device) -> Resident:
        """Put a corpus on the device."""
        everything = range(len(corpus))
        widths = [len(source) for source in corpus.sources]
        width = max(widths) if shape.trim else shape.full_bytes
        answers, prompts, positions, lengths, sizes_of_answers = [], [], [], [], []
        for model, layout in enumerate(corpus.layouts):
            rows = [corpus.row(model, number) for number in everything]
            pad = layout.tokenizer.pad
            answers.append(padded([row.answer for row in rows], shape.answer_tokens, pad).to(device))
            ids, at, sizes = prompt_ids(rows, shape.early_tokens, pad)
            prompts.append(ids.to(device))
            positions.append(at.to(device))
            lengths.append(sizes)
            sizes_of_answers.append(tuple(len(row.answer) for row in rows))
        source = source_bytes(corpus.sources, width).to(device)
        return Resident(source, answers, prompts, positions, lengths, sizes_of_answers, widths)

    def piece(
        self,
        numbers: Tensor,
        index: tuple[int, ...],
        weights: list[Tensor],
        shape: Shape,
        wants_prompts: bool,
    ) -> Piece:
        """Rows picked on the device, trimmed to the longest of them."""
        longest = max(self.widths[i] for i in index) if shape.trim else shape.full_bytes
        models = []
        for model, answers in enumerate(self.answers):
            lengths = tuple(self.lengths[model][i] for i in index)
            ids, at = self.prompts[model][:0], self.positions[model][:0]
            if wants_prompts:
                ids = self.prompts[model][:, : max(lengths)].index_select(0, numbers)
                at = self.positions[model].index_select(0, numbers)
            prompts = Prompts(ids, at, numbers, lengths, index)
            answer_width = shape.answer_width(self.answer_lengths[model][i] for i in index)
            answer = answers[:, :answer_width].index_select(0, numbers)
            models.append(ModelPiece(answer, weights[model][..., :answer_width], prompts))
        return Piece(self.source[:, :longest].index_select(0, numbers), numbers, index, models)


def term_weights(lengths: Sequence[int], answer_tokens: int, early_tokens: int) -> np.ndarray:
    """Weight of every l_ij in the teacher-forced, first-token and early-token losses [3, B, T], float64.

    `lengths` are the answers' of the whole effective batch, each with its end.
    """
    n = np.asarray(lengths)[:, None]
    real = (np.arange(answer_tokens)[None] < n).astype(np.float64)
    forced = real / real.sum()
    first = np.zeros_like(real)
    first[:, 0] = 1 / len(lengths)
    return np.stack([forced, first, _early(real, early_tokens)])


def _early(real: np.ndarray, early_tokens: int) -> np.ndarray:
    """Mean over the early tokens that anybody has, of the mean over the rows that have it [B, T]."""
    counts = real.sum(axis=0)
    counts[early_tokens:] = 0
    present = counts > 0
    weights = np.zeros_like(real)
    weights[:, present] = real[:, present] / counts[present] / present.sum()
    return weights
