"""LoRA: it is what merged weights compute, starts as nothing, and the teacher knows nothing of it."""

from __future__ import annotations

import pytest
import torch
from added import BOTH, build, derivatives, distance, inputs, learn, with_values
from torch import Tensor

from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.maths.passes import Rows
from perfsweep.workloads.latentwire.maths.trainables import Lora
from perfsweep.workloads.latentwire.presets import LMS, LORA_TARGETS


def additions(targets=LORA_TARGETS, layers=None, alpha=6.0, learned=True) -> Lora:
    torch.manual_seed(2)
    made = Lora(LMS["nano-q"], targets, 3, alpha, layers).double()
    return with_values(made) if learned else made


@pytest.mark.parametrize("attend", ["eager", "sdpa"])
@pytest.mark.parametrize("rows", [None, Rows(slice(4, 7)), Rows(torch.tensor([[0, 3], [2, 5]]))])
def test_additions_of_zero_change_no_bit(attend, rows) -> None:
    lm, x = build(attend), inputs()
    plain = lm.run(x, rows=rows)
    assert torch.equal(lm.run(x, rows=rows, lora=additions(learned=False)), plain)
    assert not torch.equal(lm.run(x, rows=rows, lora=additions()), plain)


def merged(lora: Lora, scale: float) -> CausalLM:
    """The model with scale * B A added to its matrices, by the definition; their gradients are asked for."""
    lm = build()
    for layer, added in zip(lm.layers, lora.layers, strict=False):
        for name, part in added.named_children():
            matrix = getattr(layer, name).matrix
            matrix.data += scale * part.b.detach() @ part.a.detach()
            matrix.requires_grad_(True)
    return lm


@pytest.mark.parametrize("attend", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("targets", "layers"),
    [(LORA_TARGETS, None), (LORA_TARGETS, 1), (("q", "v"), None), (("k", "down"), 1), (("up",), None)],
)
def test_additions_are_those_of_merged_weights(attend, targets, layers) -> None:
    """And by the chain rule dA = scale B^T dW, dB = scale dW A^T of the merged matrix W."""
    lora, scale = additions(targets, layers, alpha=6.0), 6.0 / 3
    x = inputs().requires_grad_()
    by_name = [(number, *part) for number, layer in enumerate(lora.layers) for part in layer.named_children()]
    assert {(number, name) for number, name, _ in by_name} == {
        (n, t) for n in range(layers or 2) for t in targets
    }
    whole = merged(lora, scale)
    expected = whole.run(x)
    of_x, *of_matrices = derivatives(
        expected, [x, *(getattr(whole.layers[n], name).matrix for n, name, _ in by_name)]
    )
    found = build(attend).run(x, lora=lora)
    parts = [part for *_, part in by_name]
    got_x, *got = derivatives(found, [x, *(part.a for part in parts), *(part.b for part in parts)])
    assert distance(found, expected) <= 1e-12 and distance(got_x, of_x) <= 1e-12
    of_a = [scale * part.b.T @ w for part, w in zip(parts, of_matrices, strict=True)]
    of_b = [scale * w @ part.a.T for part, w in zip(parts, of_matrices, strict=True)]
    assert max(map(distance, got, [*of_a, *of_b])) <= 1e-10
    # The mutant forgets that the product counts alpha / rank times.
    assert distance(merged(lora, 1.0).run(x), expected) > 1e-4


@pytest.mark.parametrize("level", ["recompute", "slice", "slice_header", "cache_h"])
def test_the_teacher_knows_nothing_of_additions(start, monkeypatch, tmp_path, level) -> None:
    def taught(learned: bool) -> tuple[Tensor, list[str]]:
        made = start(
            {"teacher": level, "passes": "merged"},
            dtype="float64",
            cache=tmp_path,
            teacher_fill="lazy",
            **BOTH,
        )
        if learned:
            learn(made)
        prompts = made.arm.collator.window([0, 1, 2, 3]).pieces[0].models[0].prompts
        return made.arm.teach(made.arm.models[0], prompts).logits, sorted(
            path.name for path in tmp_path.glob("*teacher*")
        )

    before, after = taught(False), taught(True)
    assert torch.equal(before[0], after[0]) and before[1] == after[1]
    if level == "recompute":  # the mutant lets every pass of the model have them
        run, lora = CausalLM.run, with_values(Lora(LMS["nano-l"], LORA_TARGETS, 4, 16.0).double())
        monkeypatch.setattr(
            CausalLM, "run", lambda self, *given, **more: run(self, *given, **{**more, "lora": lora})
        )
        assert distance(taught(False)[0], before[0]) > 1e-3
