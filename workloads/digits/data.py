"""Scikit-learn's digits."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from perfsweep.workloads.errors import ConfigError

# N examples of a batch, P = 64 pixels of an image.
PIXELS = 64
CLASSES = 10
BRIGHTEST = 16


@dataclass(frozen=True)
class RawDigits:
    """Raw examples: images [rows, P] uint8 in 0..16, labels [rows] uint8."""

    images: np.ndarray
    labels: np.ndarray

    def digest(self) -> str:
        """SHA-256 of pixels and labels."""
        return hashlib.sha256(self.images.tobytes() + self.labels.tobytes()).hexdigest()

    def split(self, train_rows: int) -> tuple[RawDigits, RawDigits]:
        """Training and held-out rows: the same split for every seed, so that accuracies can be compared."""
        order = np.random.default_rng(0).permutation(len(self.labels))
        train, held_out = order[:train_rows], order[train_rows:]
        return RawDigits(self.images[train], self.labels[train]), RawDigits(
            self.images[held_out], self.labels[held_out]
        )


def load_digits() -> RawDigits:
    """The 1797 digits that scikit-learn ships.

    Raises
    ------
    ConfigError
        Scikit-learn is missing, or keeps its digits elsewhere.
    """
    # Read directly: importing scikit-learn for one file costs a second of CPU time in every trial.
    with gzip.open(_digits_file(), "rt") as text:
        table = np.loadtxt(text, delimiter=",", dtype=np.uint8)
    return RawDigits(images=table[:, :PIXELS], labels=table[:, PIXELS])


def _digits_file() -> Path:
    package = find_spec("sklearn")
    folders = package.submodule_search_locations if package else None
    if not folders:
        raise ConfigError(
            "workload=digits needs the digits that come with scikit-learn: install scikit-learn"
        )
    file = Path(folders[0], "datasets/data/digits.csv.gz")
    if not file.is_file():
        raise ConfigError(
            f"workload=digits needs the digits of scikit-learn, and {file} does not exist: install"
            " scikit-learn 1.3 or newer"
        )
    return file


class DigitRows(Dataset[tuple[Tensor, int]]):
    """One example at a time, decoded when it is asked for: the work that loader processes can take over."""

    def __init__(self, digits: RawDigits) -> None:
        self.digits = digits

    def __len__(self) -> int:
        return len(self.digits.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.digits.images[row]).float() / BRIGHTEST
        return image, int(self.digits.labels[row])
