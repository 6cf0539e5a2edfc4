"""One arm's levels as typed values: the only place that reads level strings."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workloads.api import Levels
from workloads.prover.data.knowledge import ATOMS, PREDICATE_RULES, KnowledgeBase

DTYPES = {"int64": torch.int64, "int32": torch.int32, "int16": torch.int16}
WIDE_BODIES = 10
"""Bodies' worth of padding that upstream packed: A + 10 Bmax slots, 26 for bodies of two atoms."""


@dataclass(frozen=True)
class Choices:
    """How an arm evaluates: names follow the toggles."""

    slab_size: int | str
    pad_to_slab: str
    warmup_exact: bool
    early_exit: str
    skip_done: str
    refill: bool
    compile: str
    corruptions: str
    indexed: bool
    tight: bool
    rule_pairs: str
    dtype: torch.dtype
    policy_rows: str
    obs_reuse: bool
    const_states: bool
    forced_skip: bool
    fold: bool
    dedup: str
    tf32: bool
    amp: bool
    scan: bool
    screen16: bool
    expand_kernel: str
    fused_trunk: bool

    @classmethod
    def of(cls, levels: Levels) -> Choices:
        """The choices of a complete, legal set of levels."""
        on = {name: value == "on" for name, value in levels.items()}
        slab = levels["slab_size"]
        return cls(
            slab_size=slab if slab in ("all", "auto") else int(slab),
            pad_to_slab=str(levels["pad_to_slab"]),
            warmup_exact=levels["warmup"] == "exact",
            early_exit=str(levels["early_exit_all"]),
            skip_done=str(levels["skip_done"]),
            refill=levels["refill"] == "queue",
            compile=str(levels["compile"]),
            corruptions=str(levels["corruptions"]),
            indexed=levels["fact_index"] == "csr",
            tight=levels["pack_width"] == "tight",
            rule_pairs=str(levels["rule_pairs"]),
            dtype=DTYPES[str(levels["index_dtype"])],
            policy_rows=str(levels["policy_rows"]),
            obs_reuse=on["obs_reuse"],
            const_states=on["const_states"],
            forced_skip=on["forced_skip"],
            fold=on["fold"],
            dedup=str(levels["dedup"]),
            tf32=on["tf32"],
            amp=levels["amp"] == "bf16",
            scan=levels["compaction"] == "scan",
            screen16=on["screen16"],
            expand_kernel=str(levels["expand_kernel"]),
            fused_trunk=on["fused_trunk"],
        )

    @property
    def ragged(self) -> bool:
        """Whether lists are kept behind one another, and not in grids."""
        return self.policy_rows == "ragged"

    @property
    def static(self) -> bool:
        """Whether shapes must not depend on the data."""
        return self.compile != "off"

    def slots(self, kb: KnowledgeBase) -> int:
        """W: slots of a raw successor."""
        return kb.raw_atoms if self.tight else ATOMS + WIDE_BODIES * max(kb.longest_body, 2)

    def rules(self, kb: KnowledgeBase) -> int:
        """Rules a row is paired with at most."""
        return kb.largest_group if self.rule_pairs != "pad100" else max(PREDICATE_RULES, kb.largest_group)
