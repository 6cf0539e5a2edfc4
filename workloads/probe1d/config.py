"""What is solved, and activations by name. Nothing here changes how: that is the toggles' part.

Imports nothing but the standard library, so that plans can read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfsweep.workloads.errors import Ruled

STORAGE_TYPES = ("float32", "float16", "float64")
SAMPLE_WIDTH = 8
"""Classes of one sampled block: the report's slab, whatever the arm's own slab size."""


@dataclass(frozen=True)
class Probe1DConfig(Ruled):
    """The problem and the sampling rule, equal for all arms of a comparison.

    Attributes
    ----------
    data : preset name (test, profile, nfail, demo = setA, occurring, setB, full, digits, digits16,
        dict_small, dict_large) or a path to an .npz file
    data_seed : seed of the generator presets
    classes : number of classes of an .npz file, where it is more than its largest label says
    storage_dtype : type in which activations are stored: float32, float16 or float64
    tol : on the scaled gradient of the mean loss; the report-time stop test has its own
    ridge : penalty, ridge/2 (w spread)^2 with a latent's standard deviation where pairs are certified
        (solver=newton), ridge/2 (w^2 + (b - prior)^2) in naive and late, as the report has it; null
        means 1e-12 there and 1e-8 here
    max_iter : passes per slab; null means 100 for naive and newton, 30 for late
    slabs : null solves every class; a number solves that many blocks of 8 classes, drawn by a seeded
        stratified rule that is the same for all arms, and marks the job as extrapolated
    metrics : whether a job ends with loss matrices and confusion counts
    sort_in_job : whether sorting activations by latent, and all sums made once, belong to the job or to its
        set-up
    debug_log : log as at level DEBUG, which on CUDA waits for the device on every pass
    memory_mb : refuse a slab whose state and temporaries would need more than this; null: no limit
    """

    data: str = "test"
    data_seed: int = 0
    classes: int | None = None
    storage_dtype: str = "float32"
    tol: float = 1e-6
    ridge: float | None = None
    max_iter: int | None = None
    slabs: int | None = None
    metrics: bool = True
    sort_in_job: bool = True
    debug_log: bool = False
    memory_mb: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be solved.

        Raises
        ------
        ConfigError
            A field is out of range; the message names it.
        """
        self._require("tol", 0 < self.tol < 1, "between 0 and 1")
        self._require("ridge", self.ridge is None or 1e-14 <= self.ridge < 1, "null or from 1e-14 to below 1")
        self._require("data_seed", self.data_seed >= 0, "a whole number from 0")
        self._require(
            "storage_dtype", self.storage_dtype in STORAGE_TYPES, f"one of: {', '.join(STORAGE_TYPES)}"
        )
        for name in ("classes", "max_iter", "slabs", "memory_mb"):
            value = getattr(self, name)
            self._require(
                name,
                value is None or (isinstance(value, int) and value >= 1),
                "null or a whole number from 1",
            )
        # evals are stored as uint16.
        self._require("max_iter", self.max_iter is None or self.max_iter < 60_000, "below 60000")


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
