"""What files say is refused when a sweep is planned, in one sentence, and not in its trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from perfsweep.pipelines.plan.plan import load_workload
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.workload import LatentWire

safetensors_torch = pytest.importorskip("safetensors.torch")


SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads"),
)


def config_of(folder: Path, **changed: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def weights_of(folder: Path, **changed: Any) -> None:
    file = folder / "model.safetensors"
    found = {**safetensors_torch.load_file(file), **changed}
    safetensors_torch.save_file({name: one for name, one in found.items() if one is not None}, file)


def template_of(folder: Path, text: str) -> None:
    (folder / "chat_template.jinja").write_text(text)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a field": (lambda at: config_of(at, attention_multiplier=0.5), "attention_multiplier=0.5 is not"),
    "a type": (lambda at: config_of(at, model_type="gpt2"), "model_type='gpt2' is not computed here"),
    "a value": (lambda at: config_of(at, vocab_size=0), "vocab_size=0 cannot be used"),
    "too few ids": (lambda at: config_of(at, vocab_size=300), "vocab_size is 300"),
    "a width": (lambda at: config_of(at, intermediate_size=40), r"is \[48, 32\], expected \[40, 32\]"),
    "no tokenizer": (lambda at: (at / "tokenizer.json").unlink(), r"has no tokenizer\.json"),
    "no weights": (lambda at: (at / "model.safetensors").unlink(), r"has no \*\.safetensors"),
    "broken weights": (
        lambda at: (at / "model.safetensors").write_bytes(b"no tensors"),
        r"model\.safetensors cannot be read",
    ),
    "two files without an index": (
        lambda at: (
            [(at / f"{name}.safetensors").hardlink_to(at / "model.safetensors") for name in "ab"]
            and (at / "model.safetensors").unlink()
        ),
        r"2 \*\.safetensors files and no model\.safetensors\.index\.json",
    ),
    "a bias more": (
        lambda at: weights_of(at, **{"model.layers.0.self_attn.o_proj.bias": torch.zeros(32)}),
        "o_proj.bias has no place in the model",
    ),
    "a tensor less": (lambda at: weights_of(at, **{"model.norm.weight": None}), "norm.weight is missing"),
    "a tensor more": (lambda at: weights_of(at, odd=torch.zeros(2)), "odd has no place in the model"),
    "integers": (
        lambda at: weights_of(at, **{"model.norm.weight": torch.zeros(32, dtype=torch.int8)}),
        "norm.weight is quantised",
    ),
    "a template": (lambda at: template_of(at, "{{ messages[0].content }}"), "leaves out the system's"),
    "a thought": (
        lambda at: template_of(at, "{% for m in messages %}{{ m.content }}{% endfor %}<think>"),
        "ends with the opened thought <think>",
    ),
}


@pytest.fixture
def copied(local_model: Path, tmp_path: Path) -> Path:
    for file in local_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def planned(folder: Path, **more: Any) -> Any:
    own = {"name": "latentwire", "preset": "test", "max_prompt": 200, "lm_path": str(folder)}
    return load_workload({**own, **more})


@pytest.mark.parametrize("name", DAMAGES)
def test_a_folder_that_cannot_be_used_is_refused_in_the_plan(name: str, copied: Path) -> None:
    damage, sentence = DAMAGES[name]
    damage(copied)
    with pytest.raises(ConfigError, match=sentence) as raised:
        planned(copied)
    assert "\n" not in str(raised.value)


def test_a_file_of_fewer_examples_than_a_step_takes_is_refused_in_the_plan(tmp_path: Path) -> None:
    line = {"id": "1", "context": "Ba is Den.", "question": "Ba?", "answers": {"text": ["Den"]}}
    lines = [json.dumps({**line, "id": str(number)}) for number in range(12)]
    (tmp_path / "few.jsonl").write_text("\n".join(lines))
    config = LatentWireConfig(data=str(tmp_path / "few.jsonl"), held_out=8)
    toggle = next(one for one in LatentWire.toggles if one.name == "effective_batch")
    refused = {size: toggle.level(size).refused for size in (64, 4)}
    said = {size: one and one(config, {"effective_batch": size}) for size, one in refused.items()}
    assert said[4] is None and "has 4 examples without the 8 that workload.held_out keeps" in str(said[64])


def test_a_folder_that_can_be_used_is_planned(copied: Path) -> None:
    config_of(copied, flavour=3)
    _, config = planned(copied, inert_fields=["flavour"])
    assert config.lm_path == str(copied)


def test_a_teacher_is_kept_apart_from_one_of_equal_weights_with_another_window(
    start: Any, local_model: Path, copied: Path
) -> None:
    window = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0, "layer_types": None}
    config_of(copied, **window)
    kept = {"tokenise": "pre", "teacher": "cache_h"}
    started = [
        start(levels, "evidence", lm_path=str(folder), tokenizer="auto")
        for levels, folder in ((kept, local_model), (kept, copied), ({"teacher": "slice"}, copied))
    ]
    terms = [workload.evidence().tensors["terms"] for workload in started]
    digests = [workload.data_digest() for workload in started]
    assert digests[0] != digests[1] == digests[2]
    assert torch.allclose(terms[1], terms[2], rtol=1e-5)
    assert not torch.allclose(terms[0], terms[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"data": "gone.jsonl"}, r"workload\.data=gone\.jsonl cannot be read"),
        ({"resume": "gone"}, r"workload\.resume=gone has no readable checkpoint\.json"),
        ({"lm_path": "gone"}, r"workload\.lm_path=gone has no readable config\.json"),
        ({"inert_fields": ["odd"]}, "inert_fields=.* it must be empty where lm_path is null"),
    ],
)
def test_a_file_that_is_missing_is_refused_in_the_plan(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_workload({"name": "latentwire", "preset": "test", **given})
