"""Sparse codes of real images, trained here: a TopK autoencoder on patches of scikit-learn's digits.

Patch of 4x4 pixels / 16, label = the image's digit. Encoder pre = relu((a - bd) E' + be), the k largest are
kept, reconstruction z D + bd; decoder rows have unit norm after each step. Method: TopK autoencoders, Gao et
al. 2024.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perfsweep.workloads.probe1d.config import DICTIONARIES, DictionaryConfig
from perfsweep.workloads.probe1d.data.problem import Labels, ProbeData, clean_csr

PATCH = 4
HELD_OUT = 0.1
CODE_VERSION = 1


def patches(stride: int) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """All patches float32 [rows, 16], the digit of each and the image it was cut from."""
    from sklearn.datasets import load_digits

    digits: Any = load_digits()  # its stubs promise a tuple
    images = torch.from_numpy(digits.images.astype(np.float32) / 16)
    cut = images.unfold(1, PATCH, stride).unfold(2, PATCH, stride)
    per_image = cut.shape[1] * cut.shape[2]
    image = np.repeat(np.arange(len(images)), per_image)
    return cut.reshape(-1, PATCH * PATCH).contiguous(), digits.target[image], image


@dataclass(frozen=True)
class Dictionary:
    """Encoder [L, 16], its bias [L], decoder [L, 16] with unit rows, and the decoder's bias [16]."""

    encoder: Tensor
    encoder_bias: Tensor
    decoder: Tensor
    decoder_bias: Tensor
    k: int

    def encode(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """The k largest activations of each row and their latents, [rows, k]."""
        pre = torch.relu((a - self.decoder_bias) @ self.encoder.T + self.encoder_bias)
        top = pre.topk(self.k, dim=1)
        return top.values, top.indices

    def decode(self, values: Tensor, latents: Tensor) -> Tensor:
        """Reconstruction [rows, 16]."""
        codes = torch.zeros(values.shape[0], self.decoder.shape[0]).scatter(1, latents, values)
        return codes @ self.decoder + self.decoder_bias


def train(config: DictionaryConfig, a: Tensor) -> Dictionary:
    """Adam on the squared error; the seed fixes initial rows and batches."""
    generator = torch.Generator().manual_seed(config.seed)
    decoder = torch.randn(config.latents, a.shape[1], generator=generator)
    decoder = (decoder / decoder.norm(dim=1, keepdim=True)).requires_grad_()
    encoder = decoder.detach().clone().requires_grad_()
    encoder_bias = torch.zeros(config.latents, requires_grad=True)
    decoder_bias = a.mean(0).clone().requires_grad_()
    model = Dictionary(encoder, encoder_bias, decoder, decoder_bias, config.k)
    optimiser = torch.optim.Adam([encoder, encoder_bias, decoder, decoder_bias], lr=config.rate)
    for _ in range(config.steps):
        batch = a[torch.randint(len(a), (config.batch,), generator=generator)]
        loss = (model.decode(*model.encode(batch)) - batch).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            decoder /= decoder.norm(dim=1, keepdim=True)
    return Dictionary(*(part.detach() for part in (encoder, encoder_bias, decoder, decoder_bias)), k=config.k)


def unexplained_variance(model: Dictionary, a: Tensor) -> float:
    """Squared error over total variance: 0 is a perfect reconstruction."""
    with torch.no_grad():
        error = (model.decode(*model.encode(a)) - a).pow(2).sum()
    return float(error / (a - a.mean(0)).pow(2).sum())


def cache_file(config: DictionaryConfig, cache_dir: Path) -> Path:
    """Where the codes of a configuration are kept."""
    text = json.dumps({**asdict(config), "version": CODE_VERSION}, sort_keys=True)
    return cache_dir / f"probe1d-dictionary-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"


def codes(config: DictionaryConfig, cache_dir: Path) -> dict[str, np.ndarray]:
    """Code matrix and labels, trained now or read from the cache; written whole or not at all."""
    path = cache_file(config, cache_dir)
    if not path.exists():
        a, digit, image = patches(config.stride)
        model = train(config, a)
        with torch.no_grad():
            values, latents = model.encode(a)
        found = {
            "values": values.numpy(),
            "latents": latents.numpy(),
            "digit": digit,
            "image": image,
            "unexplained": np.float64(unexplained_variance(model, a)),
        }
        cache_dir.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.stem}.{np.random.default_rng().integers(2**60):x}.part.npz")
        np.savez(part, **found)
        part.replace(path)
    with np.load(path) as stored:
        return dict(stored)


def held_out_images(images: int, seed: int = 0) -> np.ndarray:
    """Which images are held out, bool [images]: whole ones, as patches of one overlap and share a label."""
    order = np.random.default_rng(seed).permutation(images)
    held = np.zeros(images, dtype=bool)
    held[order[: round(HELD_OUT * images)]] = True
    return held


def dictionary_data(preset: str, cache_dir: Path) -> ProbeData:
    """The codes of a preset as a problem, split by image."""
    config = DICTIONARIES[preset]
    found = codes(config, cache_dir)
    held = held_out_images(int(found["image"].max()) + 1, config.seed)[found["image"]]
    parts = []
    for rows in (~held, held):
        values, latents = found["values"][rows], found["latents"][rows]
        indptr = np.arange(0, values.size + 1, values.shape[1])
        x = clean_csr(indptr, latents.ravel(), values.ravel(), config.latents)
        parts += [x, Labels(10, ids=torch.from_numpy(found["digit"][rows].astype(np.uint8)))]
    return ProbeData(preset, *parts)
