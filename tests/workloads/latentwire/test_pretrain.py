"""The command that trains small models: what it writes is what it trained, for transformers and for us."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from workloads.latentwire import pretrain
from workloads.latentwire.config import LatentWireConfig
from workloads.latentwire.data.corpus import layouts_for
from workloads.latentwire.data.folder_tokenizer import read_tokenizer
from workloads.latentwire.data.row_layout import Layout
from workloads.latentwire.maths.attention import KERNELS
from workloads.latentwire.maths.lm import CausalLM, LayerPath
from workloads.latentwire.maths.lm import Path as PassPath
from workloads.latentwire.maths.local_models import load_weights
from workloads.latentwire.maths.model_config import read_shape
from workloads.latentwire.presets import LMS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.workloads


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pretrained") / "models"
    assert pretrain.main([str(made), "--preset", "test", "--steps", "2", "--until", "0"]) == 0
    return made


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
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder / name).eval()
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        assert torch.allclose(
            ours.logits(ours.run(ours.embed(ids))), theirs(ids).logits, rtol=1e-3, atol=1e-4
        )


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


def test_a_training_uses_them(start, run, folder) -> None:
    path = ",".join(str(folder / name) for name in ("nano-l", "nano-q"))
    workload = run(start(lm_path=path, tokenizer="auto", max_prompt=400), 1)
    assert workload._corpus.excluded == 0


def test_teaching_lowers_the_loss_of_answers_and_moves_every_weight() -> None:
    from workloads.latentwire.data.tokens import A, byte_tokenizer

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


def test_a_model_that_answers_too_little_is_status_one_and_none_is_overwritten(
    folder, tmp_path, capsys
) -> None:
    assert pretrain.main([str(folder), "--preset", "test", "--steps", "1"]) == 2
    assert "nano-l exists already; name another folder" in capsys.readouterr().err
    assert pretrain.main([str(tmp_path), "--preset", "test", "--steps", "1", "--until", "0.99"]) == 1
