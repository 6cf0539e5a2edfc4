"""Exact match and F1 of answers as SQuAD scores them, with bootstrap intervals."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 10_000
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and doubled blanks."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", kept).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 where the normalised prediction is one of the normalised answers."""
    return float(any(normalised(prediction) == normalised(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The best overlap of words with any of the answers, each word counted as often as it occurs there."""
    return max(_f1(normalised(prediction).split(), normalised(answer).split()) for answer in answers)


def _f1(predicted: list[str], gold: list[str]) -> float:
    if not predicted or not gold:
        return float(predicted == gold)
    shared = sum((Counter(predicted) & Counter(gold)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(gold)
    return 2 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(values: Sequence[float], seed: int = 0, draws: int = DRAWS) -> Interval:
    """Percentile interval of the mean over examples, seeded (Efron 1979)."""
    data = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = data[rng.integers(0, len(data), size=(draws, len(data)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(data.mean()), float(low), float(high))


def resolvable(values: Sequence[float]) -> float:
    """The smallest paired difference of means that this many examples show with 80 % power at 5 %."""
    data = np.asarray(values, dtype=np.float64)
    spread = data.std(ddof=1) if len(data) > 1 else 0.0
    return float(2.8 * max(spread, np.sqrt(0.25)) * np.sqrt(2 / len(data)))
