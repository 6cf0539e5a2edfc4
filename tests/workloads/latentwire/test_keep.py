"""What a training leaves to take home: it goes on from it, and others use it with transformers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest
import torch
from tiers import longer

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import load_compressor
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.batches import source_bytes
from perfsweep.workloads.latentwire.maths.passes import AttentionContext
from perfsweep.workloads.latentwire.workload import LatentWire

pytest.importorskip("safetensors")

ADDED = {"lora_rank": 2, "lora_layers": 1, "lora_targets": ["q", "down"], "deep_prefix": True}
QUICK = {"passes": "merged", "k_loss": "batched", "teacher": "slice", "decode": "batched"}
TEXTS = ["Context: The capital of Ba is Den.\nQuestion: Which?\n", "Question: Q?\n"]


def losses(workload: Any) -> list[float]:
    workload.arm.flush()
    return list(workload.arm.history)


@pytest.fixture(scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def kept(start, run, _folder) -> Path:
    """What two steps with additions have left; written once."""
    folder = _folder / "kept"
    if not folder.exists():
        folder.mkdir()
        run(start(QUICK, dtype="float64", **ADDED), 2).keep(folder)
    return folder


def test_everything_that_is_documented_is_there(kept) -> None:
    files = sorted(str(file.relative_to(kept)) for file in kept.rglob("*") if file.is_file())
    assert files == [
        "answers.jsonl",
        "checkpoint/checkpoint.json",
        "checkpoint/optimizer.safetensors",
        "checkpoint/weights.safetensors",
        *[f"lora-{n}/adapter_{what}" for n in (0, 1) for what in ("config.json", "model.safetensors")],
        "losses.csv",
        "scores.json",
    ]
    rows = list(csv.DictReader((kept / "losses.csv").open()))
    assert [row["step"] for row in rows] == ["1", "2"] and all(float(row["loss"]) > 0 for row in rows)
    scores = json.loads((kept / "scores.json").read_text())
    assert {(score["model"], score["arm"]) for score in scores} == {
        (m, arm) for m in (0, 1) for arm in ("text", "latent", "token_budget", "no_context")
    }
    answers = [json.loads(line) for line in (kept / "answers.jsonl").read_text().splitlines()]
    assert len(answers) == len(scores) * 4 and set(answers[0]) == {"id", "model", "arm", "answer", "right"}


@pytest.mark.workloads
@pytest.mark.parametrize("optimizer", ["fused", *longer("default")])
def test_training_goes_on_where_it_was_kept(optimizer, start, run, kept) -> None:
    whole = run(start(QUICK, dtype="float64", **ADDED), 4)
    path = str(kept / "checkpoint")
    resumed = run(start({**QUICK, "optimizer": optimizer}, dtype="float64", resume=path, **ADDED), 2)
    assert losses(resumed) == pytest.approx(losses(whole)[2:], rel=1e-10)
    # The mutant begins with the weights and without the moments of AdamW.
    forgetful = start(QUICK, dtype="float64", resume=path, **ADDED)
    forgetful.arm.optimizer.state.clear()
    assert losses(run(forgetful, 2))[1] != pytest.approx(losses(whole)[3], rel=1e-10)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"latents": 8}, "kept with sizes="),
        ({"lora_rank": 3}, "kept with lora_rank=2, and here it is 3"),
        ({"norm": "pre"}, "kept with norm=post, and here it is pre"),
        ({"dtype": "float32"}, "kept with dtype=float64"),
        ({"data_seed": 1}, "kept with data="),
        ({"models": 1}, "kept with frozen_models="),
        ({"anchor": "none"}, "kept with data="),
    ],
)
def test_another_training_cannot_go_on_from_it(config, message, start, kept) -> None:
    with pytest.raises(ConfigError, match=message):
        start(QUICK, **{"dtype": "float64", "resume": str(kept / "checkpoint"), **ADDED, **config})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"lora_rank": 3}, "kept with lora_rank=2, and here it is 3"),
        ({"resume": "without"}, "optimizer.safetensors"),
    ],
)
def test_what_a_checkpoint_says_is_refused_in_the_plan(config, message, kept, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    copytree(kept / "checkpoint", "without", ignore=ignore_patterns("optimizer*"))
    own = {"preset": "test", "dtype": "float64", "resume": str(kept / "checkpoint"), **ADDED}
    LatentWire.planned(LatentWireConfig(**own))
    with pytest.raises(ConfigError, match=message):
        LatentWire.planned(LatentWireConfig(**{**own, **config}))


def test_what_is_no_checkpoint_is_named(start, kept, tmp_path) -> None:
    folder = tmp_path / "checkpoint"

    def refused(message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            start(QUICK, dtype="float64", resume=str(folder), **ADDED)

    refused(r"has no readable checkpoint\.json")
    folder.mkdir()
    for file in (kept / "checkpoint").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    about = json.loads((folder / "checkpoint.json").read_text())
    weights = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(weights[: len(weights) // 2])
    refused(r"weights\.safetensors cannot be read")
    (folder / "weights.safetensors").write_bytes((folder / "optimizer.safetensors").read_bytes())
    refused(r"weights\.safetensors has encoder.* as missing")
    (folder / "checkpoint.json").write_text(json.dumps({**about, "version": 2}))
    refused("has version 2, and version 1 is read here")
    (folder / "checkpoint.json").write_text(json.dumps({"format": "another"}))
    refused(r"checkpoint\.json is not LatentWire's")
    (folder / "checkpoint.json").write_text("{")
    refused(r"has no readable checkpoint\.json")


def test_a_folder_that_cannot_be_written_is_named(start, tmp_path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        start(QUICK).keep(file)


def test_other_weights_are_other_data(start, kept) -> None:
    anew, resumed = (
        start(QUICK, **ADDED, dtype="float64"),
        start(QUICK, dtype="float64", resume=str(kept / "checkpoint"), **ADDED),
    )
    assert anew.data_digest() != resumed.data_digest()


# With a model of transformers


@pytest.fixture
def trained(start, run, local_model, tmp_path) -> tuple[Any, Path]:
    """A training for a local model with additions large enough to matter, and what it kept."""
    workload = run(start(QUICK, lm_path=str(local_model), tokenizer="auto", **ADDED), 1)
    with torch.no_grad():
        for parameter in workload.arm.trained[0].lora.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    (tmp_path / "kept").mkdir()
    workload.keep(tmp_path / "kept")
    return workload, tmp_path / "kept"


def own_logits(workload: Any, texts: list[str]) -> torch.Tensor:
    """What the training itself predicts behind the anchor."""
    model = workload.arm.models[0]
    sources = [text.encode() for text in texts]
    z = workload.arm.encoder(source_bytes(sources, 128))
    start = workload.arm.around(model, workload.arm.prefix(model, z))
    hidden = model.lm.run(start.tokens, AttentionContext(start.past), lora=model.trained.lora)
    return model.lm.logits(hidden[:, -1])


def theirs(folder: Path, additions: Path | None) -> Any:
    """The model of transformers, with an adapter of PEFT added to its matrices."""
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    if additions is None:
        return model
    about = json.loads((additions / "adapter_config.json").read_text())
    tensors = load_file(additions / "adapter_model.safetensors")
    assert about["peft_type"] == "LORA" and set(about["target_modules"]) == {"q_proj", "down_proj"}
    for name in [name for name in tensors if name.endswith("lora_A.weight")]:
        place = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        product = tensors[name.replace("lora_A", "lora_B")] @ tensors[name]
        model.get_submodule(place).weight.data += about["lora_alpha"] / about["r"] * product
    return model


@torch.no_grad()
def predicted(model: Any, folder: Path) -> torch.Tensor:
    from transformers import DynamicCache

    prompt = load_compressor(folder / "checkpoint")(TEXTS)
    assert prompt.past is not None
    past = DynamicCache()
    for number, (keys, values) in enumerate(prompt.past):
        past.update(keys, values, number)
    embedded = prompt.embedded(model.get_input_embeddings())
    return model(inputs_embeds=embedded, past_key_values=past).logits[:, -1]


@pytest.mark.workloads
def test_soft_tokens_and_additions_mean_the_same_to_transformers(trained, local_model) -> None:
    workload, folder = trained
    expected = own_logits(workload, TEXTS)
    found = predicted(theirs(local_model, folder / "lora-0"), folder)
    assert torch.allclose(found, expected, atol=1e-5)
    assert not torch.allclose(predicted(theirs(local_model, None), folder), expected, atol=1e-3)


def test_without_a_deep_prefix_a_prompt_is_its_soft_tokens_alone(start, tmp_path) -> None:
    start(QUICK).keep(tmp_path)
    prompt = load_compressor(tmp_path / "checkpoint")(TEXTS)
    assert prompt.past is None and prompt.tokens.shape[0] == len(TEXTS)


def test_a_compressor_cuts_texts_as_training_did_and_refuses_empty_ones(kept) -> None:
    compressor = load_compressor(kept / "checkpoint", model=1)
    long = "word " * 100
    assert torch.equal(compressor([long]).tokens, compressor([long[:128]]).tokens)
    assert compressor([long]).tokens.shape == (1, 4, 48)
    with pytest.raises(ConfigError, match="empty text"):
        compressor([""])
    with pytest.raises(ConfigError, match="has 2 models"):
        load_compressor(kept / "checkpoint", model=2)
    with pytest.raises(ConfigError, match=r"no readable checkpoint\.json"):
        load_compressor(kept)
