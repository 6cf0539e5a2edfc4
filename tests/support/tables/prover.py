"""The prover's toggles, with combinations that must be refused, and its best arms."""

from __future__ import annotations

from dataclasses import dataclass

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.prover.variants import FAST, TOGGLES

__all__ = ["BEST", "FORBIDDEN", "PRESETS", "REFUSED_BY_CONFIG", "TOGGLES", "Config"]


@dataclass
class Config:
    """What refusals depend on."""

    constants: int = 2968
    predicates: int = 12
    atoms: int = 6
    arity: int = 2
    longest_body: int = 2

    @property
    def largest_id(self) -> int:
        """Of a term or predicate."""
        return max(self.constants + 2 * self.atoms, self.predicates + 3)


BEST: dict[str, LevelValue] = {
    **FAST,
    "slab_size": 512,
    "pad_to_slab": "done_row",
    "warmup": "exact",
    "dedup": "global",
}

PRESETS: dict[str, dict[str, LevelValue]] = {
    "screened": {**BEST, "screen16": "on"},
    "static": {
        **BEST,
        "compile": "reduce_overhead",
        "compile_cache": "shared",
        "rule_pairs": "exact",
        "policy_rows": "row_budget",
        "dedup": "off",
    },
    "gpu": {**BEST, "slab_size": 4096, "expand_kernel": "triton", "tf32": "on"},
}


FORBIDDEN: tuple[tuple[dict[str, LevelValue], str], ...] = (
    ({"slab_size": "auto"}, "slab_search"),
    ({"slab_size": 64, "slab_search": "ladder"}, "slab_size"),
    ({"pad_to_slab": "done_row"}, "slab_size"),
    ({"warmup": "exact"}, "slab_size"),
    ({"refill": "queue"}, "slab_size"),
    ({"slab_size": 512, "refill": "queue", "skip_done": "compact"}, "skip_done"),
    *(
        ({"compile": mode, "policy_rows": "ragged"}, "policy_rows")
        for mode in ("default", "reduce_overhead", "max_autotune")
    ),
    ({"compile": "default", "rule_pairs": "ragged"}, "rule_pairs"),
    ({"compile_cache": "shared"}, "compile"),
    ({"forced_skip": "on"}, "policy_rows"),
    ({"screen16": "on", "tf32": "on"}, "tf32"),
)

REFUSED_BY_CONFIG: tuple[tuple[Config, dict[str, LevelValue], str], ...] = (
    (Config(constants=32756), {"index_dtype": "int16"}, "int32"),
    (Config(predicates=2**15), {"index_dtype": "int16"}, "int32"),
)
