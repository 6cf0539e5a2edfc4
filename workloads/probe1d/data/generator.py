"""Seeded synthetic activations with the statistics that make the solvers' traps visible.

Rows come in images that mix a few classes; latents differ in rate by orders of magnitude, some are dead, some
rare, half prefer a class. About a quarter of the latents get a root mean square below 1, which is what stalls
an inconsistent stop test; raising `shift` to +2 removes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from perfsweep.workloads.probe1d.config import Shape
from perfsweep.workloads.probe1d.data.problem import Csr, Labels, ProbeData


@dataclass(frozen=True)
class Latents:
    """Per latent: activation probability off and on its preferred class, that class, log scale of values."""

    rate: np.ndarray
    preferred_rate: np.ndarray
    preferred: np.ndarray
    log_scale: np.ndarray


def class_prior(shape: Shape) -> np.ndarray:
    """Zipf-like prior over classes; the last `empty` ones never occur."""
    prior = (np.arange(shape.classes) + 2.0) ** -1.1
    prior[shape.classes - shape.empty :] = 0
    return prior / prior.sum()


def draw_labels(shape: Shape, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Class ids of `rows` rows: each image of some rows mixes three to eight classes by a flat Dirichlet.

    To cover all classes they are dealt out to the images, whatever their prior: as the leading part of one.
    """
    prior = class_prior(shape)
    images = -(-rows // shape.image_rows)
    dealt = np.array_split(rng.permutation(np.flatnonzero(prior)), images) if shape.covered else None
    pieces = []
    for number in range(images):
        k = min(int(rng.integers(3, 9)), np.count_nonzero(prior))
        chosen = rng.choice(shape.classes, size=k, replace=False, p=prior)
        if dealt is not None:
            chosen[: dealt[number].size] = dealt[number][:k]
        size = min(shape.image_rows, rows - number * shape.image_rows)
        piece = rng.choice(chosen, size=size, p=rng.dirichlet(np.ones(k)))
        if dealt is not None:
            piece[: dealt[number].size] = dealt[number][:size]  # however small its share of the image is
        pieces.append(piece)
    return np.concatenate(pieces)


def draw_latents(shape: Shape, rng: np.random.Generator) -> Latents:
    """Rates (log-normal, some dead, some rare, rescaled to the density), preferred classes, value scales."""
    rate = np.exp(rng.normal(0, 1.6, shape.latents))
    rate = np.minimum(rate * shape.density / rate.sum(), 0.5)
    kind = rng.random(shape.latents)
    rate[kind < shape.dead] = 0
    rare = (kind >= shape.dead) & (kind < shape.dead + shape.rare)
    rate[rare] = 3 / shape.rows
    common = ~rare
    # Rare latents keep their three expected rows: only the others take up what is missing to the density.
    rate[common] *= (shape.density - rate[rare].sum()) / max(rate[common].sum(), 1e-30)
    rate = np.minimum(rate, 0.6)
    preferred = rng.choice(shape.classes, size=shape.latents, p=class_prior(shape))
    boost = np.where(rng.random(shape.latents) < 0.5, 6.0, 1.0)
    return Latents(
        rate, np.minimum(rate * boost, 0.95), preferred, rng.normal(shape.shift, 0.7, shape.latents)
    )


def generate(shape: Shape, seed: int, device: str = "cpu", name: str = "synthetic") -> ProbeData:
    """Training rows and a tenth as many held-out rows; drawn in numpy, or on the device where it is a GPU."""
    rng = np.random.default_rng([seed, shape.rows, shape.latents])
    latents = draw_latents(shape, rng)
    sample = _sample_numpy if device == "cpu" else _sample_torch
    parts = []
    for rows in (shape.rows, max(shape.rows // 10, 1)):
        ids = draw_labels(shape, rng, rows)
        kind = np.uint8 if shape.classes <= 256 else np.int16
        labels = Labels(shape.classes, ids=torch.from_numpy(ids.astype(kind)))
        parts.append((sample(shape, latents, ids, rng, device), labels.to(device)))
    (x, labels), (x_val, labels_val) = parts
    return ProbeData(name, x, labels, x_val, labels_val)


def _row_block(shape: Shape) -> int:
    return max(1, min(8192, 2**22 // shape.latents))


def _sample_numpy(
    shape: Shape, latents: Latents, ids: np.ndarray, rng: np.random.Generator, device: str
) -> Csr:
    """Bernoulli draws in blocks of rows, which come out in row order: no sort is needed for CSR."""
    counts, columns, values = [], [], []
    for start in range(0, ids.size, _row_block(shape)):
        block = ids[start : start + _row_block(shape)]
        own = block[:, None] == latents.preferred[None, :]
        active = rng.random((block.size, shape.latents)) < np.where(own, latents.preferred_rate, latents.rate)
        row, column = np.nonzero(active)
        x = np.exp(latents.log_scale[column] + rng.normal(0, 0.9, column.size)) * np.where(
            own[row, column], 1.5, 1.0
        )
        counts.append(active.sum(1))
        columns.append(column)
        values.append(np.maximum(x, 1e-4).astype(np.float32))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
    indices = torch.from_numpy(np.concatenate(columns))
    return Csr(torch.from_numpy(indptr), indices, torch.from_numpy(np.concatenate(values)), shape.latents)


def _sample_torch(
    shape: Shape, latents: Latents, ids: np.ndarray, rng: np.random.Generator, device: str
) -> Csr:
    """The same law on the device: full size needs some 10^11 draws and must not travel."""
    generator = torch.Generator(device).manual_seed(int(rng.integers(2**62)))
    rate = torch.from_numpy(latents.rate).float().to(device)
    preferred_rate = torch.from_numpy(latents.preferred_rate).float().to(device)
    preferred = torch.from_numpy(latents.preferred).to(device)
    log_scale = torch.from_numpy(latents.log_scale).float().to(device)
    classes = torch.from_numpy(ids).to(device)
    counts, columns, values = [], [], []
    for block in classes.split(max(1, 2**26 // shape.latents)):
        own = block[:, None] == preferred[None, :]
        draw = torch.rand(own.shape, generator=generator, device=device)
        row, column = (draw < torch.where(own, preferred_rate, rate)).nonzero(as_tuple=True)
        noise = torch.randn(column.shape, generator=generator, device=device) * 0.9
        x = torch.exp(log_scale[column] + noise) * torch.where(own[row, column], 1.5, 1.0)
        counts.append(torch.bincount(row, minlength=block.numel()))
        columns.append(column.to(torch.int32))
        values.append(x.clamp(min=1e-4))
    lengths = torch.cat(counts)
    indptr = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return Csr(indptr, torch.cat(columns).long(), torch.cat(values), shape.latents)
