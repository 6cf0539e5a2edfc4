"""What a configuration gives as one mapping: the sizes of a transformer, and how an adversary moves.

Declarations only: no torch, so that plans can read them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOMENTS = ("beta1", "beta2")
SCHEDULES = ("constant", "linear", "cosine")
SCOPES = ("single_source", "broadcast_across_batch", "repeat_across_batch", "per_batch_per_position")
CHOICES = {"optimizer": ("adam", "sign"), "schedule": SCHEDULES, "scope": SCOPES}
WHOLE = (("steps", 0), ("n_sources", 1))


@dataclass(frozen=True)
class TransformerSpec:
    """The importance function that reads all modules, `importance` = global_shared_transformer.

    Attributes
    ----------
    width, blocks, heads : of the stream
    context : most positions of a row
    base : of the rotary positions
    """

    width: int
    blocks: int
    heads: int
    context: int = 2048
    base: float = 10000.0

    @staticmethod
    def problem(given: Mapping[str, Any]) -> str | None:
        """What the fields must be, or None where they are."""
        sizes = ("width", "blocks", "heads", "context")
        if not {"width", "blocks", "heads"} <= given.keys() <= {*sizes, "base"}:
            return "width, blocks and heads, and where wanted context and base"
        whole = all(given[name] >= 1 and given[name] % 1 == 0 for name in sizes if name in given)
        if not whole or not given.get("base", 1) > 0:
            return "of whole numbers from 1, and a base above 0"
        return None if given["width"] % (2 * given["heads"]) == 0 else "of heads of an even width"

    @staticmethod
    def of(given: Mapping[str, Any]) -> TransformerSpec:
        """The sizes of a configuration, where numbers may be floats."""
        whole = {name: int(value) for name, value in given.items() if name != "base"}
        return TransformerSpec(**{**given, **whole})


@dataclass(frozen=True)
class Adversary:
    """How the sources of persistent terms are kept and moved.

    Attributes
    ----------
    optimizer : adam or sign
    lr, schedule, final_lr, lr_warmup : length of a step, scheduled as the training's own rate
    beta1, beta2, eps : of Adam
    scope : single_source, broadcast_across_batch (each position of a row its own), repeat_across_batch (those
        of `n_sources` rows, again and again) or per_batch_per_position
    steps : on each batch, before the step with the gradient of the loss
    sigmoid : sources are sigmoids of what is kept, instead of clipped to [0, 1]
    """

    optimizer: str = "adam"
    lr: float = 0.1
    schedule: str = "constant"
    final_lr: float = 1.0
    lr_warmup: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    scope: str = "single_source"
    n_sources: int = 1
    steps: int = 0
    sigmoid: bool = False

    @staticmethod
    def problem(given: Mapping[str, Any]) -> str | None:
        """What the fields must be, or None where they are."""
        known = {one.name: one.default for one in dataclasses.fields(Adversary)}
        if not given.keys() <= known.keys():
            return f"of {', '.join(known)}"
        one = {**known, **given}
        rules = {
            **{name: (one[name] in words, f"one of {', '.join(words)}") for name, words in CHOICES.items()},
            **{name: (_is_whole(one[name], least), f"a whole number from {least}") for name, least in WHOLE},
            **{name: (_is_number(one[name]) and one[name] < 1, "from 0 to below 1") for name in MOMENTS},
            **{name: (_is_number(one[name]), "a number from 0") for name in ("eps", "final_lr")},
            "lr_warmup": (_is_number(one["lr_warmup"], 1), "a number from 0 to 1"),
            "sigmoid": (isinstance(one["sigmoid"], bool), "true or false"),
            "lr": (_is_number(one["lr"]) and one["lr"] > 0, "a number above 0"),
        }
        wrong = [f"one whose {name} is {rule}" for name, (holds, rule) in rules.items() if not holds]
        return wrong[0] if wrong else None


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any, most: float = sys.float_info.max) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= most
