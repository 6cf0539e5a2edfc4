"""The command that trains small models: what it writes is what it trained, for transformers and for us."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.latentwire import pretrain
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.corpus import layouts_for
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.data.tokens import read_tokenizer
from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.frozen import load_weights
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath
from perfsweep.workloads.latentwire.maths.lm import Path as PassPath
from perfsweep.workloads.latentwire.maths.model_config import read_shape
from perfsweep.workloads.latentwire.presets import LMS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    made = tmp_path_factory.mktemp("pretrained") / "models"
    assert pretrain.main([str(made), "--preset", "test", "--steps", "2", "--until", "0"]) == 0
    return made


@pytest.mark.workloads
@pytest.mark.parametrize("name", ["nano-l", "nano-q"])
def test_what_is_written_is_read_alike_by_both(name, folder) -> None:
    shape = read_shape(folder / name)
    assert (shape.d_model, shape.qkv_bias, shape.rms_eps) == (
        LMS[name].d_model,
        LMS[name].qkv_bias,
        LMS[name].rms_eps,
    )
    ours = CausalLM(shape, torch.Generator().manual_seed(5))
    load_weights(ours, folder / name)
    ours.path = PassPath(LayerPath(KERNELS["sdpa"]))
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder / name).eval()
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        assert torch.allclose(
            ours.logits(ours.run(ours.embed(ids))), theirs(ids).logits, rtol=1e-3, atol=1e-4
        )


@pytest.mark.workloads
@pytest.mark.parametrize("number", [0, 1])
def test_a_written_tokenizer_gives_the_ids_of_the_training(number, cache_dir, tmp_path) -> None:
    config = LatentWireConfig(preset="test", tokenizer="bpe", max_prompt=400)
    trained = layouts_for(config, [LMS[name] for name in config.sizes.lms], cache_dir)[number]
    size = trained.tokenizer.first_special  # type: ignore[union-attr]
    (file,) = cache_dir.glob(f"latentwire-bpe-{size}-*.json")
    pretrain._write_tokenizer(tmp_path, trained, file)
    read = Layout(read_tokenizer(tmp_path), "text", trained.latents, trained.answer_tokens, 400)
    for example, _ in zip(pretrain.examples(3), range(5), strict=False):
        assert read.row(example) == trained.row(example)
    assert (read.before, read.anchor_ids) == (trained.before, trained.anchor_ids)


@pytest.mark.workloads
def test_a_training_uses_them(start, run, folder) -> None:
    path = ",".join(str(folder / name) for name in ("nano-l", "nano-q"))
    workload = run(start(lm_path=path, tokenizer="auto", max_prompt=400), 1)
    assert workload.arm.corpus.excluded == 0


@pytest.mark.workloads
def test_teaching_lowers_the_loss_of_answers_and_moves_every_weight() -> None:
    from perfsweep.workloads.latentwire.data.tokens import A, byte_tokenizer

    layout = Layout(byte_tokenizer(A), "text", 4, 6, 400)
    lm = CausalLM(LMS["nano-l"], torch.Generator().manual_seed(0)).requires_grad_(True)
    lm.path = PassPath(LayerPath(KERNELS["sdpa"]))
    before = {name: value.clone() for name, value in lm.state_dict().items()}
    rows = [(row.scaffold, row.answer) for row in map(layout.row, _first(8))]
    device = torch.device("cpu")
    with torch.no_grad():
        first = pretrain._loss(lm, layout, rows, 0.0, device).item()
    pretrain.teach(lm, layout, pretrain.Course(12, batch=4, warmup=1, lr=3e-3, until=2.0), device)
    with torch.no_grad():
        assert pretrain._loss(lm, layout, rows, 0.0, device).item() < 0.8 * first
    assert all(not torch.equal(before[name], value) for name, value in lm.state_dict().items())


def _first(count: int) -> list[pretrain.Example]:
    return [example for example, _ in zip(pretrain.examples(9), range(count), strict=False)]


@pytest.mark.workloads
def test_no_model_is_overwritten(folder, capsys) -> None:
    assert pretrain.main([str(folder), "--preset", "test", "--steps", "1"]) == 2
    assert "nano-l exists already; name another folder" in capsys.readouterr().err


class Taught:
    """What a course does to a model of one weight, whose answers are as good as is said beforehand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: float) -> None:
        self.lm = torch.nn.Linear(1, 1, bias=False)
        self.weights: list[float] = []
        self.kept: list[bool] = []
        self.tested: list[int] = []
        answers = iter(found)

        def loss(*_: Any) -> torch.Tensor:
            self.weights.append(self.lm.weight.item())
            self.kept.append(self.lm.weight.grad is not None)
            return self.lm.weight.sum()

        def matches(*_: Any) -> float:
            self.tested.append(len(self.weights))
            return next(answers)

        monkeypatch.setattr(pretrain, "examples", lambda seed: iter(range(999)))
        monkeypatch.setattr(pretrain, "_loss", loss)
        monkeypatch.setattr(pretrain, "exact_matches", matches)

    def learn(self, device: str = "cpu", **course: Any) -> float:
        layout: Any = SimpleNamespace(row=lambda example: SimpleNamespace(scaffold=[], answer=[]))
        found = pretrain.Course(**{"batch": 1, "warmup": 4, "lr": 0.1, **course})
        return pretrain.teach(self.lm, layout, found, torch.device(device))  # type: ignore[arg-type]


def test_a_course_is_tested_now_and_then_and_at_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taught = Taught(monkeypatch, 0.1, 0.2, 0.3)
    assert taught.learn(steps=7, test_every=3, until=0.9) == 0.3
    assert taught.tested == [3, 6, 7] and not any(taught.kept)
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["step 3", "step 6", "step 7"]
    assert "exact matches 0.30" in said[-1]


def test_a_course_ends_as_soon_as_it_has_reached_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    taught = Taught(monkeypatch, 0.5, 0.8, 0.9)
    assert taught.learn(steps=99, test_every=2, until=0.8) == 0.8
    assert taught.tested == [2, 4]


@pytest.mark.parametrize(("reached", "status"), [([0.9, 0.8], 0), ([0.9, 0.79], 1), ([0.1, 0.9], 1)])
def test_the_weaker_of_both_models_decides(
    monkeypatch: pytest.MonkeyPatch, reached: list[float], status: int
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(pretrain, "_pretrain", lambda given, number: asked.append(given) or reached[number])
    assert pretrain.main(["folder", "--preset", "test", "--until", "0.8"]) == status
    assert (asked[0].folder, asked[0].preset, asked[0].steps, len(asked)) == ("folder", "test", 20_000, 2)


def test_a_loss_is_of_texts_and_answers_by_their_shares() -> None:
    layout: Any = SimpleNamespace(tokenizer=SimpleNamespace(pad=0))
    lm = CausalLM(LMS["nano-l"], torch.Generator().manual_seed(0), torch.float64)
    lm.path = PassPath(LayerPath(KERNELS["sdpa"]))
    rows = [([5, 6, 7], [8, 9]), ([5, 6], [7])]
    texts, answers = [], []
    for scaffold, answer in rows:
        ids = [*scaffold, *answer]
        log_p = lm.logits(lm.run(lm.embed(torch.tensor([ids]))))[0].log_softmax(-1)
        each = [-log_p[place - 1, ids[place]].item() for place in range(1, len(ids))]
        texts += each[: len(scaffold) - 1]
        answers += each[len(scaffold) - 1 :]
    text, answer = sum(texts) / len(texts), sum(answers) / len(answers)
    for share in (0.0, 0.2, 1.0):
        found = pretrain._loss(lm, layout, rows, share, torch.device("cpu")).item()
        assert found == pytest.approx(share * text + (1 - share) * answer, rel=1e-6)


def test_the_first_steps_of_a_course_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    taught = Taught(monkeypatch, 0.0)
    taught.learn(steps=7, test_every=100, until=1.0)
    rates = [before - after for before, after in pairwise(taught.weights)]
    assert rates == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rel=0.05)
