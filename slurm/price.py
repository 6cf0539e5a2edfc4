"""What a site charges: an amount for an hour of a node or of a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from perfsweep.slurm.errors import ClusterError

REMEDY = "write it as 2.5/GPU-hour or 2.5/node-hour, with a currency after the amount where you like"

_PRICE = re.compile(
    r"(?P<amount>[+-]?[\d.,]+(?:e[+-]?\d+)?)\s*(?P<currency>[^\W\d]{1,4}|[$€£¥])?"
    r"\s*(?:/|\s+per\s+)\s*(?P<per>gpu|node)(?:[-_ ]?(?:hour|hr|h))\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Price:
    """An amount of a currency (empty: not said) for an hour of a GPU or a node."""

    amount: float
    currency: str
    per: Literal["GPU", "node"]

    def __str__(self) -> str:
        return f"{self.amount:g}{self.currency and f' {self.currency}'} per {self.per}-hour"

    def of(self, seconds: float, count: int) -> float:
        """What so many GPUs or nodes cost for some seconds."""
        return self.amount * seconds / 3600 * count


def parse_price(text: str) -> Price:
    """Read a price such as ``2.5/GPU-hour`` or ``1.10 EUR per node-hour``.

    Raises
    ------
    ClusterError
        It has no unit, is no number, or is not above zero.
    """
    match = _PRICE.fullmatch(text.strip())
    try:
        amount = float(match["amount"]) if match else float("nan")
    except ValueError:
        match, amount = None, float("nan")
    if match is None:
        bare = re.fullmatch(r"[+-]?[\d.]+\s*\S{0,4}", text.strip())
        raise ClusterError(f"cluster.price={text} {'has no unit' if bare else 'is no price'}; {REMEDY}")
    if not 0 < amount < float("inf"):
        raise ClusterError(f"cluster.price={text} must be above zero; leave it out where nothing is charged")
    per: Literal["GPU", "node"] = "GPU" if match["per"].lower() == "gpu" else "node"
    return Price(amount, match["currency"] or "", per)
