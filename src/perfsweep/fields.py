"""Declare the options of a configuration: each field once, with its default, its range and one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any

MOST_NUMBER = 10**12
"""Largest number of a field without an upper bound: a larger one, or infinity, is a mistake."""

MOST_ENTRIES = 10_000
"""Most entries of a list or a mapping, and most characters of a text."""


def option(
    default: Any,
    description: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    **properties: Any,
) -> Any:
    """Declare a field of a dataclass.

    The range is in the field's metadata under pydantic's names. A pydantic model that holds the dataclass
    then refuses and documents the same values.

    Parameters
    ----------
    default : the value, or a function that makes it (``list``, ``dict``, a dataclass)
    least, above, most : numbers that a value must reach, exceed and not exceed
    choices : the texts that are allowed; of a list, the texts of its items
    properties : further metadata that the declaring class needs
    """
    limits = {"ge": least, "gt": above, "le": most}
    metadata = {
        "description": description,
        **{name: limit for name, limit in limits.items() if limit is not None},
        **({"json_schema_extra": {"enum": [str(choice) for choice in choices]}} if choices else {}),
        **properties,
    }
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def default_of(declared: Field[Any]) -> Any:
    """Return the default of a field; `dataclasses.MISSING` where it has none."""
    return declared.default if declared.default_factory is MISSING else declared.default_factory()


def choices_of(declared: Field[Any]) -> tuple[str, ...]:
    """List the texts that a field may hold; empty where it may hold any."""
    return tuple(declared.metadata.get("json_schema_extra", {}).get("enum", ()))


def range_of(declared: Field[Any]) -> str:
    """Put the range of a number into words: ``at least 1``; empty where there is none."""
    words = {"ge": "at least {:g}", "gt": "above {:g}", "le": "at most {:g}"}
    limits = [
        text.format(declared.metadata[name]) for name, text in words.items() if name in declared.metadata
    ]
    return " and ".join(limits).replace("above 0", "above zero")


def refusals(options: Any, prefix: str = "") -> Iterator[str]:
    """Write a sentence for every value that its declaration does not allow; `prefix` goes before its name."""
    for declared in fields(options):
        name, value = f"{prefix}{declared.name}", getattr(options, declared.name)
        if is_dataclass(value):
            yield from refusals(value, f"{name}.")
        elif (longest := _longest(value)) > MOST_ENTRIES:
            yield f"{name}: {longest:,} entries or characters are too many. Give at most {MOST_ENTRIES:,}"
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(value, list) and "list[str]" in str(declared.type) and not isinstance(item, str):
                yield f"{name}: {item!r} is no text; write each entry as one text"
            elif item is not None and (refusal := _refusal(item, declared)):
                yield f"{name}={str(item)[:100]} {refusal}"


def _longest(value: Any) -> int:
    """Length of the longest list, mapping or text in a value."""
    if isinstance(value, str):
        return len(value)
    if is_dataclass(value):
        value = vars(value)
    parts = [*value, *value.values()] if isinstance(value, Mapping) else value
    return max(len(value), *map(_longest, parts), 0) if isinstance(parts, list) and parts else 0


def _refusal(value: Any, declared: Field[Any]) -> str | None:
    choices = choices_of(declared)
    if choices and value not in choices:
        return f"is unknown; choose from: {', '.join(choices)}"
    beyond = isinstance(value, int | float) and not abs(value) <= declared.metadata.get("le", MOST_NUMBER)
    if not beyond and _in_range(value, declared.metadata):
        return None
    bounds = [range_of(declared)]
    if beyond and "le" not in declared.metadata:
        bounds.append(f"at most {MOST_NUMBER:g}")
    optional = declared.default is None and (beyond or "gt" in declared.metadata)
    remedy = "; leave it out for none" if optional else ""
    return f"must be {' and '.join(filter(None, bounds))}{remedy}"


def _in_range(value: Any, limits: Mapping[str, Any]) -> bool:
    return (
        ("ge" not in limits or value >= limits["ge"])
        and ("gt" not in limits or value > limits["gt"])
        and ("le" not in limits or value <= limits["le"])
    )
