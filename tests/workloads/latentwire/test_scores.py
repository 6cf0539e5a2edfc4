"""What each arm reads, and how its answers are scored, against the model asked by hand."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.latentwire import scores
from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.maths.passes import AttentionContext
from perfsweep.workloads.latentwire.workload import LatentWire

QUICK = {"passes": "merged", "teacher": "slice", "decode": "batched"}


@pytest.fixture
def workload(start) -> LatentWire:
    return start(QUICK, dtype="float64", models=1)


def read_by(workload: LatentWire, number: int, arm: str, example: Example) -> list[int]:
    """Ids that an arm reads before it answers."""
    layout = workload.arm.layouts[number]
    kept = layout.tokenizer.encode(example.source, specials=False)[: layout.latents]
    texts = {"text": example.source, "no_context": "", "token_budget": layout.tokenizer.decode(kept)}
    return layout.scaffold(texts[arm])


@torch.no_grad()
def by_hand(workload: LatentWire, number: int, arm: str) -> dict[str, float]:
    """Likelihood of the right answers, one row after the other."""
    layout, model = workload.arm.layouts[number], workload.arm.models[number]
    examples = workload.arm.corpus.held_out
    total = tokens = first = among = length = 0.0
    for example in examples:
        ids, answer = read_by(workload, number, arm, example), layout.answer(example.answer)
        hidden = model.lm.run(model.lm.embed(torch.tensor([ids + answer[:-1]])))
        log_p = model.lm.logits(hidden)[0, len(ids) - 1 :].log_softmax(-1)
        total -= sum(log_p[place, token].item() for place, token in enumerate(answer))
        order = log_p[0].argsort(descending=True).tolist()
        first, among = first + (order[0] == answer[0]), among + (answer[0] in order[:5])
        tokens, length = tokens + len(answer), length + len(ids)
    count = len(examples)
    return {
        "nll": total / tokens,
        "top1": first / count,
        "top5": among / count,
        "prompt_tokens": length / count,
    }


def test_likelihoods_are_those_of_the_frozen_model_on_what_the_arm_reads(workload: LatentWire) -> None:
    found = workload.evaluate(3)
    for score in found:
        if score.arm != "latent":
            expected = by_hand(workload, score.model, score.arm)
            assert {name: getattr(score, name) for name in expected} == pytest.approx(expected, rel=1e-6)
        assert score.wall_s > 0 and len(score.texts) == len(score.f1_each) == 4
        assert score.f1.mean == pytest.approx(sum(score.f1_each) / 4)
    latent = [score for score in found if score.arm == "latent"]
    assert [one.prompt_tokens for one in latent] == [layout.prefix for layout in workload.arm.layouts]


def test_the_latent_arm_reads_what_training_would_show_the_model(workload: LatentWire) -> None:
    examples, model = workload.arm.corpus.held_out, workload.arm.models[0]
    read = scores._read(workload.arm, 0, "latent", examples)
    logits = model.lm.logits(model.lm.run(read.tokens, AttentionContext(read.past), lora=read.lora)[:, -1])
    longer = [Example(one.id, "x" * 300 + one.source, one.answer, one.answers) for one in examples]
    again = scores._read(workload.arm, 0, "latent", longer)
    assert not torch.equal(read.tokens, again.tokens) and again.tokens.shape == read.tokens.shape
    cut = [Example(one.id, one.source[:128], one.answer, one.answers) for one in longer]
    same = scores._read(workload.arm, 0, "latent", cut)
    assert torch.equal(same.tokens, again.tokens), "sources are cut as in training"
    answers = [workload.arm.layouts[0].answer(one.answer)[0] for one in examples]
    score = next(s for s in workload.evaluate(1) if (s.model, s.arm) == (0, "latent"))
    assert score.top1 == sum(row.argmax().item() == a for row, a in zip(logits, answers, strict=True)) / 4


def test_answers_are_the_models_own_words_and_judged_by_them(workload: LatentWire) -> None:
    layout, lm = workload.arm.layouts[0], workload.arm.models[0].lm
    example = workload.arm.corpus.held_out[0]
    ids = layout.scaffold(example.source)
    written: list[int] = []
    with torch.no_grad():
        for _ in range(3):
            written.append(lm.logits(lm.run(lm.embed(torch.tensor([ids + written])))[:, -1]).argmax().item())
    text = layout.tokenizer.decode(scores._until(written, layout.tokenizer.end)).strip()
    right = Example("a", example.source, text, (text,))
    wrong = Example("b", example.source, "no", ("nothing like that",))
    score = scores.evaluate(workload.arm, [right, wrong], 3)[0]
    assert score.texts == (text, text)
    assert (score.em.mean, score.f1_each) == (0.5, (1.0, 0.0))
