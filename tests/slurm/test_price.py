"""Prices: an amount with a unit, or a sentence."""

from __future__ import annotations

import pytest

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.price import Price, parse_price
from perfsweep.slurm.site import SiteProfile


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("2.5EUR/GPUh", Price(2.5, "EUR", "GPU")),
        ("1e-1 $ per node-hour", Price(0.1, "$", "node")),
        (" 12 USD per Node hour ", Price(12.0, "USD", "node")),
    ],
)
def test_an_amount_with_a_unit_is_a_price(text: str, price: Price) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2.5", "cluster.price=2.5 has no unit; write it as 2.5/GPU-hour or 2.5/node-hour"),
        (
            "-1/GPU-hour",
            "cluster.price=-1/GPU-hour must be above zero; leave it out where nothing is charged",
        ),
        ("nan/node-hour", "is no price"),
        ("1e999/node-hour", "must be above zero"),
        ("2.5/hour", "is no price; write it as"),
        ("1.2.3/GPU-hour", "is no price"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(text: str, reason: str) -> None:
    with pytest.raises(ClusterError) as refused:
        SiteProfile(price=text).check()
    assert reason in str(refused.value)


def test_a_price_reads_back_as_it_was_meant() -> None:
    for text in ("2.5 EUR per GPU-hour", "0.1 per node-hour"):
        assert str(parse_price(text)) == text
