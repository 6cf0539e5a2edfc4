"""A trained encoder in use, without a sweep: texts to soft tokens for your own model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import checkpoint
from perfsweep.workloads.latentwire.data.batches import source_bytes
from perfsweep.workloads.latentwire.maths.encoder import Adapter, LatentEncoder, calibrated
from perfsweep.workloads.latentwire.maths.trainables import DeepPrefix
from perfsweep.workloads.latentwire.presets import LMConfig


@dataclass(frozen=True)
class SoftPrompt:
    """What a model reads instead of texts.

    Attributes
    ----------
    tokens : soft tokens [B, M, d], as loud as the model's embeddings
    past : keys and values [B, g, M, e] of every layer before all tokens; None: no deep prefix was trained
    before, after : ids of the tokens around the soft ones; the answer follows `after`
    """

    tokens: Tensor
    past: list[tuple[Tensor, Tensor]] | None
    before: list[int]
    after: list[int]

    def embedded(self, embed: Callable[[Tensor], Tensor]) -> Tensor:
        """The whole prompt [B, P, d]; `embed` takes ids [n] to embeddings [n, d], as a model's table does."""
        around = [
            embed(torch.tensor(ids, dtype=torch.long, device=self.tokens.device)).expand(
                len(self.tokens), -1, -1
            )
            for ids in (self.before, self.after)
        ]
        return torch.cat((around[0], self.tokens.to(around[0].dtype), around[1]), dim=1)


class Compressor:
    """Encoder and adapter for one model, as `load_compressor` reads them."""

    def __init__(self, about: dict[str, Any], weights: dict[str, Tensor], model: int) -> None:
        sizes, facts = about["sizes"], about["models"][model]
        self._facts, self._max_bytes = facts, sizes["max_bytes"]
        self._encoder = LatentEncoder(
            sizes["latent_width"],
            sizes["encoder_layers"],
            sizes["max_bytes"],
            sizes["latents"],
            about["norm"],
            dropout=0.0,
        )
        self._adapter = Adapter(sizes["latent_width"], facts["width"])
        self._deep = DeepPrefix(_shape(facts)) if about["deep_prefix"] else None
        parts = {"encoder": self._encoder, f"models.{model}.adapter": self._adapter}
        if self._deep is not None:
            parts[f"models.{model}.deep"] = self._deep
        for start, module in parts.items():
            own = {
                name[len(start) + 1 :]: one for name, one in weights.items() if name.startswith(f"{start}.")
            }
            module.load_state_dict(own)
            module.to(weights["encoder.pooler.queries"]).eval()

    def to(self, device: torch.device | str) -> Compressor:
        """Itself, on a device."""
        for module in (self._encoder, self._adapter, self._deep):
            if module is not None:
                module.to(device)
        return self

    @torch.no_grad()
    def __call__(self, texts: Sequence[str]) -> SoftPrompt:
        """Soft tokens for B texts; of each text the first `max_bytes` bytes count, as in training.

        Raises
        ------
        ConfigError
            A text is empty.
        """
        if not texts or not all(texts):
            raise ConfigError("an empty text has nothing to compress; leave it out")
        sources = [text.encode("utf-8")[: self._max_bytes] for text in texts]
        device = self._encoder.pooler.queries.device
        z = self._encoder(source_bytes(sources, max(map(len, sources))).to(device))
        soft = self._adapter(z)
        past = None if self._deep is None else self._deep(soft)
        tokens = calibrated(soft, self._facts["rms"])
        return SoftPrompt(tokens, past, self._facts["before"], self._facts["after"])


def _shape(facts: dict[str, Any]) -> LMConfig:
    """As much of a model's shape as a deep prefix needs."""
    return LMConfig(
        1, facts["width"], facts["layers"], facts["key_heads"], facts["key_heads"], facts["head_width"], 1
    )


def load_compressor(folder: Path | str, model: int = 0, device: torch.device | str = "cpu") -> Compressor:
    """Read the encoder of a kept checkpoint with the adapter for its model number `model`.

    Parameters
    ----------
    folder : the folder ``checkpoint`` that a training kept
    model : 0 or 1, in the order of `workload.lm_path`
    device : where soft tokens are made

    Raises
    ------
    ConfigError
        The folder holds no such checkpoint, or the model is none of its models.
    """
    about, weights = checkpoint.read(Path(folder), "folder")
    if not 0 <= model < len(about["models"]):
        raise ConfigError(f"{folder} has {len(about['models'])} models; choose model from 0 on")
    return Compressor(about, weights, model).to(device)
