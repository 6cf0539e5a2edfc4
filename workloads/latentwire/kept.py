"""What a training leaves to take home: a checkpoint, its losses, scores and answers, additions for PEFT.

``checkpoint/`` is what `workload.resume` and `load_compressor` read, ``losses.csv`` the last losses by step,
``scores.json`` EM, F1 and likelihoods of every arm of every model on the held-out examples, ``answers.jsonl``
the answers themselves, and ``lora-N/`` the additions to model N as an adapter of the PEFT library.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.maths.lora import Lora
from perfsweep.workloads.latentwire.maths.trainables import Trained
from perfsweep.workloads.latentwire.scores import Score
from perfsweep.workloads.weight_files import write_safetensors

PLACES = {
    **{name: f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")},
    **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}
"""Our names of a layer's matrices, and those of transformers."""


def write_results(
    folder: Path, losses: Mapping[int, float], scores: Sequence[Score], examples: Sequence[Example]
) -> None:
    """Write losses by step, scores and answers.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    rows = "".join(f"{step},{loss!r}\n" for step, loss in losses.items())
    answers = [
        {"id": example.id, "model": score.model, "arm": score.arm, "answer": text, "right": example.answers}
        for score in scores
        for text, example in zip(score.texts, examples, strict=True)
    ]
    try:
        (folder / "losses.csv").write_text("step,loss\n" + rows, encoding="utf-8")
        (folder / "scores.json").write_text(
            json.dumps([_figures(score) for score in scores], indent=2) + "\n"
        )
        lines = (json.dumps(answer, ensure_ascii=False) for answer in answers)
        (folder / "answers.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error}); name another folder") from error


def _figures(score: Score) -> dict[str, Any]:
    found = dataclasses.asdict(score)
    return {name: value for name, value in found.items() if name not in ("f1_each", "texts", "wall_s")}


def write_additions(folder: Path, trained: Sequence[Trained], config: LatentWireConfig) -> None:
    """Write every model's low-rank additions as PEFT keeps them; nothing where none were trained."""
    for number, one in enumerate(trained):
        if one.lora is None:
            continue
        place = folder / f"lora-{number}"
        place.mkdir()
        write_safetensors(place / "adapter_model.safetensors", _peft_names(one.lora))
        base = str(config.lm_folders[number]) if config.lm_folders else None
        about = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": config.lora_rank,
            "lora_alpha": config.lora_alpha,
            "target_modules": [PLACES[name].rpartition(".")[2] for name in config.lora_targets],
            "layers_to_transform": list(range(len(one.lora.layers))),
            "bias": "none",
            "lora_dropout": 0.0,
            "inference_mode": True,
        }
        (place / "adapter_config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _peft_names(lora: Lora) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for number, layer in enumerate(lora.layers):
        for name, addition in layer.named_children():
            start = f"base_model.model.model.layers.{number}.{PLACES[name]}"
            for part, value in (("lora_A", addition.a), ("lora_B", addition.b)):  # type: ignore[union-attr]
                found[f"{start}.{part}.weight"] = value.detach().cpu().contiguous()  # type: ignore[union-attr]
    return found
