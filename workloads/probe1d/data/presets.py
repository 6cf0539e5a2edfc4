"""Activations by name: what is generated, scikit-learn's digits, and dictionaries that are trained here.

Imports nothing but the standard library, so that plans can read it.
"""

from __future__ import annotations

from dataclasses import dataclass

IMAGE_ROWS = 256


@dataclass(frozen=True)
class Shape:
    """Size and rarity of a synthetic problem.

    `density` is the mean number of active latents per row, `used` the classes of the grid that are asked for,
    where not all. `covered`: every class with a prior has rows; otherwise the rarest are never drawn.
    """

    rows: int
    latents: int
    classes: int
    density: float
    dead: float
    rare: float
    empty: int
    used: int | None = None
    shift: float = -0.2
    image_rows: int = IMAGE_ROWS
    covered: bool = False


GENERATED = {
    "test": Shape(1024, 64, 8, 8, 0.1, 0.2, 1),
    "profile": Shape(1024, 2048, 256, 64, 0.058, 0.2, 20),
    "nfail": Shape(4096, 2048, 24, 16, 0.2, 0.2, 1, used=8),
    "demo": Shape(8192, 1024, 151, 32, 0.01, 0.2, 3),
    "occurring": Shape(8192, 1024, 151, 32, 0.01, 0.2, 0, image_rows=64, covered=True),
    "setB": Shape(131072, 256, 32, 24, 0.01, 0.2, 1),
    "full": Shape(5_170_000, 16384, 151, 437, 0.01, 0.2, 3),
}
GENERATED["setA"] = GENERATED["demo"]


@dataclass(frozen=True)
class DictionaryConfig:
    """Size and training of a dictionary; `stride` is the distance of neighbouring patches in pixels."""

    stride: int
    latents: int
    k: int
    steps: int
    batch: int = 512
    rate: float = 3e-3
    seed: int = 0


DICTIONARIES = {
    "dict_small": DictionaryConfig(stride=2, latents=128, k=6, steps=600),
    "dict_large": DictionaryConfig(stride=1, latents=512, k=8, steps=1500),
}

DIGITS = {"digits": 1.0, "digits16": 16.0}


def sources() -> list[str]:
    """Names that `workload.data` knows in addition to paths."""
    return [*GENERATED, *DIGITS, *DICTIONARIES]
