"""What the latents carry: greedy answers from text, latents, as many tokens as latents, and nothing.

Arms: ``text`` reads the whole prompt, ``latent`` the soft tokens and the anchor, ``token_budget`` a prompt
whose content is cut to as many tokens as there are latents, ``no_context`` a prompt without content, which is
the floor. Exact match and F1 of answers are SQuAD's, with bootstrap intervals.
"""

from __future__ import annotations

import re
import string
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.latentwire.data import batches
from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.maths.losses import cross_entropy
from perfsweep.workloads.latentwire.maths.passes import AttentionContext, KeyValues, of_row
from perfsweep.workloads.latentwire.maths.trainables import Lora
from perfsweep.workloads.latentwire.presets import PAD_BYTE
from perfsweep.workloads.latentwire.reference import Reference

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


ARMS = ("text", "latent", "token_budget", "no_context")


@dataclass(frozen=True)
class Score:
    """One arm of one model.

    Attributes
    ----------
    em, f1 : with intervals over examples
    f1_each : of every example, for paired comparisons
    texts : the answers themselves
    nll : negative log likelihood of the answers per token
    top1, top5 : share of answers whose first token is the likeliest, among the five likeliest
    prompt_tokens : mean length of what the model reads before it answers
    wall_s : of decoding all examples
    """

    model: int
    arm: str
    em: Interval
    f1: Interval
    f1_each: tuple[float, ...] = field(repr=False)
    nll: float
    top1: float
    top5: float
    prompt_tokens: float
    wall_s: float
    texts: tuple[str, ...] = field(default=(), repr=False)


@torch.no_grad()
def evaluate(training: Reference, examples: Sequence[Example], max_new: int) -> list[Score]:
    """Every arm of every model of a training."""
    return [_score(training, number, arm, examples, max_new) for number in training.models for arm in ARMS]


def _score(training: Reference, number: int, arm: str, examples: Sequence[Example], max_new: int) -> Score:
    lm, layout = training.models[number].lm, training.layouts[number]
    read = _read(training, number, arm, examples)
    started = time.perf_counter()
    decode = training.decoder(lm, layout.tokenizer.end, max_new, read.lora)
    ids, _ = decode(read.tokens, read.lengths, read.past)
    wall_s = time.perf_counter() - started
    texts = [layout.tokenizer.decode(_until(row, layout.tokenizer.end)) for row in ids.tolist()]
    exact = [exact_match(text, example.answers) for text, example in zip(texts, examples, strict=True)]
    overlap = [f1(text, example.answers) for text, example in zip(texts, examples, strict=True)]
    quality = (bootstrap(exact), bootstrap(overlap), tuple(overlap))
    likelihood = _likelihood(lm, layout, read, examples)
    tokens = sum(read.lengths) / len(read.lengths)
    return Score(number, arm, *quality, *likelihood, tokens, wall_s, tuple(text.strip() for text in texts))


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids


@dataclass(frozen=True)
class _Read:
    """What a model reads first: embedded tokens [B, S, d] padded right, lengths, and what was trained.

    Only the latent arm has additions and a deep prefix: all others show the frozen model.
    """

    tokens: Tensor
    lengths: list[int]
    past: KeyValues | None = None
    lora: Lora | None = None


def _read(training: Reference, number: int, arm: str, examples: Sequence[Example]) -> _Read:
    model, layout = training.models[number], training.layouts[number]
    device = model.lm.table.device
    if arm == "latent":
        width = training.encoder.bytes.positions.shape[0]
        texts = [example.source.encode()[:width] for example in examples]
        source = batches.source_bytes(texts, max(map(len, texts))).to(device)
        assert int((source != PAD_BYTE).sum(1).min()) > 0
        z = training.latents(batches.Piece(source, source[:, 0], tuple(range(len(texts))), []))
        start = training.around(model, training.prefix(model, z))
        return _Read(start.tokens, [start.tokens.shape[1]] * len(examples), start.past, model.trained.lora)
    rows = [_scaffold(layout, arm, example.source) for example in examples]
    ids = batches.padded(rows, max(map(len, rows)), layout.tokenizer.pad).to(device)
    return _Read(model.lm.embed(ids), [len(row) for row in rows])


def _scaffold(layout: Layout, arm: str, source: str) -> list[int]:
    if arm == "text":
        return layout.scaffold(source)
    if arm == "no_context":
        return layout.scaffold("")
    kept = layout.tokenizer.encode(source, specials=False)[: layout.latents]
    return layout.scaffold(layout.tokenizer.decode(kept))


def _likelihood(
    lm: CausalLM, layout: Layout, read: _Read, examples: Sequence[Example]
) -> tuple[float, float, float]:
    """Mean negative log likelihood per answer token; how often the first one ranks first, in the top five."""
    total = tokens = first = among = 0.0
    for row, (x, length, example) in enumerate(zip(read.tokens, read.lengths, examples, strict=True)):
        answer = torch.tensor([layout.answer(example.answer)], device=x.device)
        whole = torch.cat((x[None, :length], lm.embed(answer[:, :-1])), dim=1)
        hidden = lm.run(whole, AttentionContext(of_row(read.past, row)), lora=read.lora)
        logits = lm.logits(hidden[:, length - 1 :])
        total += cross_entropy(logits, answer).sum().item()
        tokens += answer.shape[1]
        best = logits[0, 0].topk(5).indices.tolist()
        first += best[0] == int(answer[0, 0])
        among += int(answer[0, 0]) in best
    return total / tokens, first / len(examples), among / len(examples)
