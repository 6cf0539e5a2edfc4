"""Files of results that a training leaves, from scores that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.maths.encoder import Adapter
from perfsweep.workloads.latentwire.maths.trainables import Lora, Trained
from perfsweep.workloads.latentwire.presets import LMS
from perfsweep.workloads.latentwire.scores import Interval, Score
from perfsweep.workloads.latentwire.workload import write_additions, write_results

HALF = Interval(0.5, 0.25, 0.75)
EXAMPLES = [Example("a", "s", "Den", ("Den", "den")), Example("b", "s", "Grün", ("Grün",))]


def score(model: int, arm: str, *texts: str) -> Score:
    return Score(model, arm, HALF, HALF, (0.0, 1.0), 1.5, 0.25, 0.75, 12.0, 9.9, texts)


def test_losses_scores_and_answers_are_written(tmp_path: Path) -> None:
    scores = [score(0, "text", "Den", "Far"), score(1, "latent", "x", "Grün")]
    write_results(tmp_path, {3: 0.1, 4: 2.0}, scores, EXAMPLES)
    assert (tmp_path / "losses.csv").read_text() == "step,loss\n3,0.1\n4,2.0\n"
    half = {"mean": 0.5, "low": 0.25, "high": 0.75}
    (first, second) = json.loads((tmp_path / "scores.json").read_text())
    assert first == {
        "model": 0,
        "arm": "text",
        "em": half,
        "f1": half,
        "nll": 1.5,
        "top1": 0.25,
        "top5": 0.75,
        "prompt_tokens": 12.0,
    }
    assert (second["model"], second["arm"]) == (1, "latent")
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    assert json.loads(lines[0]) == {
        "id": "a",
        "model": 0,
        "arm": "text",
        "answer": "Den",
        "right": ["Den", "den"],
    }
    assert "Grün" in lines[3] and json.loads(lines[3])["id"] == "b"


@pytest.mark.parametrize(("folders", "base"), [((), None), (("/a", "/b"), "/b")])
def test_additions_are_an_adapter_of_the_model_they_belong_to(
    tmp_path: Path, folders: tuple[str, ...], base: str | None
) -> None:
    load_file = pytest.importorskip("safetensors.torch").load_file
    shape = LMS["nano-q"]
    lora = Lora(shape, ["q", "down"], rank=2, alpha=8.0, layers=1)
    config: Any = SimpleNamespace(
        lm_folders=[Path(one) for one in folders], lora_rank=2, lora_alpha=8.0, lora_targets=["q", "down"]
    )
    trained = [Trained(Adapter(4, shape.d_model)), Trained(Adapter(4, shape.d_model), lora)]
    write_additions(tmp_path, trained, config)
    assert [place.name for place in tmp_path.iterdir()] == ["lora-1"]
    about = json.loads((tmp_path / "lora-1" / "adapter_config.json").read_text())
    assert about["base_model_name_or_path"] == base
    assert (about["r"], about["lora_alpha"], about["layers_to_transform"]) == (2, 8.0, [0])
    assert about["target_modules"] == ["q_proj", "down_proj"]
    tensors = load_file(tmp_path / "lora-1" / "adapter_model.safetensors")
    start = "base_model.model.model.layers.0"
    assert tensors.keys() == {
        f"{start}.{place}.lora_{part}.weight"
        for place in ("self_attn.q_proj", "mlp.down_proj")
        for part in "AB"
    }
    assert torch.equal(tensors[f"{start}.self_attn.q_proj.lora_A.weight"], lora.layers[0].q.a)  # type: ignore[union-attr]
