"""Options are declared once: default, range, choices and a sentence, and mistakes name the field."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perfsweep.fields import option, refusals


@dataclass
class Inner:
    share: float = option(0.5, "A share.", above=0, most=1)


@dataclass
class Outer:
    count: int = option(3, "A number.", least=2)
    limit: float | None = option(None, "A limit.", above=0)
    kind: str = option("a", "A kind.", choices=("a", "b"))
    kinds: list[str] = option(list, "Kinds.", choices=("a", "b"))
    free: dict[str, object] = option(dict, "Anything.")
    inner: Inner = option(Inner, "A group.")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"count": 1}, "group.count=1 must be at least 2"),
        ({"limit": 0.0}, "group.limit=0.0 must be above zero; leave it out for none"),
        (
            {"limit": float("nan")},
            "group.limit=nan must be above zero and at most 1e+12; leave it out for none",
        ),
        (
            {"limit": float("inf")},
            "group.limit=inf must be above zero and at most 1e+12; leave it out for none",
        ),
        ({"count": 10**400}, f"group.count=1{'0' * 99} must be at least 2 and at most 1e+12"),
        (
            {"kinds": ["a"] * 10_001},
            "group.kinds: 10,001 entries or characters are too many. Give at most 10,000",
        ),
        (
            {"free": {"b": [{"c" * 10_001: 1}]}},
            "group.free: 10,001 entries or characters are too many. Give at most 10,000",
        ),
        ({"kind": "c"}, "group.kind=c is unknown; choose from: a, b"),
        ({"kinds": ["a", "c"]}, "group.kinds=c is unknown; choose from: a, b"),
        ({"kinds": [["a"]]}, "group.kinds: ['a'] is no text; write each entry as one text"),
        ({"kinds": [None]}, "group.kinds: None is no text; write each entry as one text"),
        ({"inner": Inner(1.5)}, "group.inner.share=1.5 must be above zero and at most 1"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_group_and_the_remedy(
    values: dict[str, object], sentence: str
) -> None:
    assert list(refusals(Outer(**values), "group.")) == [sentence]  # type: ignore[arg-type]
