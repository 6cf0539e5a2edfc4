"""Windows cut from a corpus of five examples, worked out by hand, and the same from rows on the device."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.latentwire.data.batches import (
    Collator,
    Numbers,
    Shape,
    Window,
    epoch_order,
    epoch_windows,
    share,
    term_weights,
)
from perfsweep.workloads.latentwire.data.row_layout import Row
from perfsweep.workloads.latentwire.presets import PAD_BYTE

PAD = 9
ROWS = [
    Row([1, 2], [3, 4, 5]),
    Row([1, 2, 6], [7]),
    Row([1], [8, 3]),
    Row([2, 2, 2, 2], [4, 4, 4, 4]),
    Row([5], [6, 7, 8]),
]


class Tiny:
    """A corpus of one model, tokenised already."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.layouts = [SimpleNamespace(tokenizer=SimpleNamespace(pad=PAD))]
        self.sources = [b"abcde", b"a", b"abc", b"ab", b"abcd"]

    def __len__(self) -> int:
        return len(ROWS)

    def row(self, model: int, number: int) -> Row:
        self.counts["rows_tokenised"] += 1
        return ROWS[number]

    def answer_length(self, model: int, number: int) -> int:
        return len(ROWS[number].answer)


SHAPE = Shape(effective=4, micro=2, answer_tokens=4, early_tokens=2, full_bytes=6)


def collator(**changed: Any) -> Collator:
    corpus: Any = Tiny()
    return Collator(corpus, dataclasses.replace(SHAPE, **changed))


@pytest.mark.parametrize(
    ("trims", "lengths", "width"),
    [
        (False, [1], 16),
        (True, [1, 2], 6),  # early tokens need six positions
        (True, [7], 8),
        (True, [9, 3], 12),
        (True, [40], 16),
    ],
)
def test_answers_are_as_wide_as_the_longest_in_fours(trims: bool, lengths: list[int], width: int) -> None:
    shape = dataclasses.replace(SHAPE, answer_tokens=16, early_tokens=6, trim_answers=trims)
    assert shape.answer_width(lengths) == width


def test_pieces_of_a_window_have_their_rows_weights_and_bytes() -> None:
    window = collator().window([3, 0, 1])
    assert (window.examples, window.tokenised, len(window.pieces)) == (3, 3, 2)
    first, last = window.pieces
    assert (len(first), len(last)) == (2, 1)
    assert first.index == tuple(first.numbers.tolist()) == (3, 0)
    assert first.source.shape == (2, 6)
    assert first.source[0].tolist() == [97, 98, *[PAD_BYTE] * 4]
    assert first.models[0].answer.tolist() == [[4, 4, 4, 4], [3, 4, 5, 9]]
    assert first.models[0].prompts.lengths == (5, 3)
    assert last.models[0].prompts.index == (1,)
    weights = torch.from_numpy(term_weights([4, 3, 1], 4, 2)).float()
    found = torch.cat([piece.models[0].weights for piece in window.pieces], dim=1)
    assert torch.equal(found, weights)


def test_a_rank_has_every_second_row_with_the_weights_of_the_whole_window() -> None:
    window = collator(rank=1, world=2, micro=4).window([3, 0, 1])
    (piece,) = window.pieces
    assert piece.index == (0,)
    assert window.examples == 3
    weights = torch.from_numpy(term_weights([4, 3, 1], 4, 2)).float()
    assert torch.equal(piece.models[0].weights, weights[:, 1:2])
    assert share([5, 6, 7], dataclasses.replace(SHAPE, rank=0, world=2)) == [5, 7]


def test_a_short_piece_of_compiled_code_is_filled_up_with_rows_that_weigh_nothing() -> None:
    last = collator(static=True).window([3, 0, 1]).pieces[-1]
    assert last.index == (1, 1)
    assert last.models[0].answer.tolist() == [[7, 9, 9, 9]] * 2
    assert last.models[0].weights[:, 1].abs().sum() == 0
    assert last.models[0].weights[:, 0].abs().sum() > 0


def same(one: Window, other: Window) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.tensors(), other.tensors(), strict=True)) and [
        (piece.index, *(m.prompts.lengths for m in piece.models)) for piece in one.pieces
    ] == [(piece.index, *(m.prompts.lengths for m in piece.models)) for piece in other.pieces]


LENGTHS = [5, 3, 9, 1, 7, 3, 8]


@pytest.mark.parametrize("bucket", ["off", "window", "global"])
def test_an_epoch_has_every_row_once_in_windows_that_are_sorted_as_asked(bucket: str) -> None:
    windows = epoch_windows(LENGTHS, 3, 1, 2, bucket)
    assert sorted(number for window in windows for number in window) == list(range(7))
    assert sorted(map(len, windows)) == [1, 2, 2, 2]
    order = epoch_order(7, 3, 1)
    plain = [order[first : first + 2] for first in range(0, 7, 2)]
    key = lambda number: (LENGTHS[number], number)  # noqa: E731
    if bucket == "off":
        assert windows == plain
    if bucket == "window":
        assert windows == [sorted(window, key=key) for window in plain]
    if bucket == "global":
        ordered = sorted(range(7), key=key)
        assert sorted(windows) == sorted(ordered[first : first + 2] for first in range(0, 7, 2))


def test_numbers_go_on_from_any_step() -> None:
    corpus: Any = Tiny()
    shape = dataclasses.replace(SHAPE, effective=2)
    whole = list(islice(iter(Numbers(corpus, shape, seed=5)), 8))
    assert list(islice(iter(Numbers(corpus, shape, seed=5, start=4)), 4)) == whole[4:]
    assert [len(window) for window in whole] == [2, 2, 1, 2, 2, 1, 2, 2]
