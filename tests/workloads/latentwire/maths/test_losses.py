"""Losses against hand-written sums, and upstream's mistakes as mutants that the same tests reject."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perfsweep.workloads.latentwire.data.batches import term_weights
from perfsweep.workloads.latentwire.maths.losses import StudentOut, cross_entropy, divergence, model_terms

T, K, V = 6, 4, 11


def by_hand(ce: np.ndarray, kd: np.ndarray, lengths: list[int]) -> list[float]:
    """The four losses as they are defined, position by position."""
    forced = [ce[i, j] for i, n in enumerate(lengths) for j in range(min(n, T))]
    columns = [[i for i, n in enumerate(lengths) if n > j] for j in range(K)]
    early = [np.mean([ce[i, j] for i in rows]) for j, rows in enumerate(columns) if rows]
    distilled = [np.mean([kd[i, j] for i in rows]) for j, rows in enumerate(columns) if rows]
    return [float(np.mean(forced)), float(ce[:, 0].mean()), float(np.mean(early)), float(np.mean(distilled))]


def terms(ce: np.ndarray, kd: np.ndarray, weights: np.ndarray) -> list[float]:
    wide = torch.from_numpy(ce)
    out = StudentOut(wide, wide[:, 0], wide[:, :K], torch.empty(0), torch.empty(0), [])
    return model_terms(out, torch.from_numpy(kd), torch.from_numpy(weights)).tolist()


lengths_of_rows = st.lists(st.integers(1, T), min_size=1, max_size=6)
numbers = st.floats(0, 20, width=32)


@given(lengths=lengths_of_rows, data=st.data())
def test_weighted_sums_are_the_losses_of_the_definition(lengths, data) -> None:
    ce = data.draw(arrays(np.float64, (len(lengths), T), elements=numbers))
    kd = data.draw(arrays(np.float64, (len(lengths), K), elements=numbers))
    found = terms(ce, kd, term_weights(lengths, T, K))
    assert found == pytest.approx(by_hand(ce, kd, lengths), rel=1e-12, abs=1e-12)


@given(lengths=st.lists(st.integers(1, T), min_size=2, max_size=6), cut=st.integers(1, 5), data=st.data())
def test_pieces_add_up_to_the_whole(lengths, cut, data) -> None:
    ce = data.draw(arrays(np.float64, (len(lengths), T), elements=numbers))
    weights, kd = term_weights(lengths, T, K), ce[:, :K]
    cut = min(cut, len(lengths) - 1)
    parts = [terms(ce[rows], kd[rows], weights[:, rows]) for rows in (slice(None, cut), slice(cut, None))]
    assert np.add(*parts) == pytest.approx(by_hand(ce, kd, lengths), rel=1e-12, abs=1e-12)


def test_answers_of_two_tokens_give_finite_early_losses() -> None:
    """Upstream took the mean over no rows at the third token: NaN, and the whole step was dropped."""
    ce, lengths = np.ones((3, T)), [2, 2, 1]
    assert terms(ce, ce[:, :K], term_weights(lengths, T, K)) == pytest.approx([1.0] * 4)

    def upstream(lengths: list[int]) -> float:
        with np.errstate(invalid="ignore"):
            means = [
                np.float64(sum(n > j for n in lengths)) / np.float64(sum(n > j for n in lengths))
                for j in range(K)
            ]
        return float(np.mean(means))

    assert math.isnan(upstream(lengths))


def test_cross_entropy_is_the_negative_log_likelihood_of_each_position() -> None:
    logits, targets = torch.randn(2, 3, V, dtype=torch.float64), torch.randint(0, V, (2, 3))
    for i in range(2):
        for j in range(3):
            expected = -torch.log(torch.exp(logits[i, j, targets[i, j]]) / torch.exp(logits[i, j]).sum())
            assert cross_entropy(logits, targets)[i, j].item() == pytest.approx(expected.item(), rel=1e-12)


def test_temperature_and_weight_of_the_divergence() -> None:
    student, teacher = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    p = math.exp(1) / (math.exp(1) + 1)
    expected = 4 * (p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)))
    assert divergence(student, teacher).item() == pytest.approx(expected, rel=1e-12)


def test_the_terms_of_a_training_are_those_of_a_separate_computation(start) -> None:
    """Teacher-forced loss from one whole pass per row, with no batch, cache or weights of ours.

    The mutant shifts labels once by hand and once more, as upstream did: position j learns token j + 2.
    """

    workload = start({"passes": "merged"}, kind="evidence", dtype="float64", models=1)
    model, layout, corpus = workload.arm.models[0], workload.arm.layouts[0], workload.arm.corpus
    found, shifted, tokens = 0.0, 0.0, 0
    with torch.no_grad():
        for number in range(workload._config.sizes.probe_rows):
            text = list(corpus.examples[number].source.encode()[: corpus.max_bytes])
            z = workload.arm.encoder(torch.tensor([text]))
            x = workload.arm.around(model, workload.arm.prefix(model, z)).tokens
            answer = layout.answer(corpus.examples[number].answer)
            ids = torch.tensor([answer])
            logits = model.lm.logits(model.lm.run(torch.cat((x, model.lm.embed(ids)), 1)))[0].log_softmax(-1)
            first = x.shape[1] - 1
            found -= sum(logits[first + j, token].item() for j, token in enumerate(answer))
            shifted -= sum(
                logits[first + j, token].item() for j, token in enumerate([*answer[1:], answer[-1]])
            )
            tokens += len(answer)
    reported = workload._probe["terms"][0].item()
    assert reported == pytest.approx(found / tokens, rel=1e-9)
    assert reported != pytest.approx(shifted / tokens, rel=1e-4)
