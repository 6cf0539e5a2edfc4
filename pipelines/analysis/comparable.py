"""What must not be mixed: records of several machines or versions, and arms that worked on different data.

Nothing is ever computed over such a mixture, and the report still comes out: of several machines the one with
the most trials counts, and an effect between arms of different data has no time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import polars as pl

from perfsweep.pipelines.store.progress import DATA, Progress, machine_of


@dataclass(frozen=True)
class ComparableTrials:
    """Trials that may be compared, the digest of each arm's data (by id), and what was left out."""

    trials: pl.DataFrame
    data: Mapping[str, str]
    left_out: frozenset[str]
    notes: tuple[str, ...]


def comparable_trials(
    used: pl.DataFrame, contradictions: Mapping[str, str] = MappingProxyType({})
) -> ComparableTrials:
    """Keep the timing trials of one machine and, within each arm, of one set of data.

    `contradictions` are folders of trials whose records cannot be true, with the reason.
    """
    notes = [
        f"{len(contradictions)} timing trials are left out: their records cannot be true;"
        f" the first: {folder}: {wrong}"
        for folder, wrong in list(contradictions.items())[:1]
    ]
    keyed = used.filter(~pl.col("folder").is_in(list(contradictions))).with_columns(
        pl.col("keys").map_elements(_machine, return_dtype=pl.String).alias("_machine"),
        pl.col("keys")
        .map_elements(lambda text: keys_of(text).get(DATA, ""), return_dtype=pl.String)
        .alias("_data"),
    )
    if (machine := _commonest(keyed, "_machine")) is not None:
        kept = keyed.filter(pl.col("_machine") == machine)
        others = keyed.filter(pl.col("_machine") != machine)["_machine"].unique().sort().to_list()
        notes += [
            f"{keyed.filter(pl.col('_machine') == other).height} timing trials are left out:"
            f" {told_apart(keys_of(machine), keys_of(other))}"
            for other in others
        ]
        keyed = kept
    data, parts = {}, []
    for (arm,), own in keyed.group_by("arm", maintain_order=True):
        data[arm] = _commonest(own, "_data") or ""
        parts.append(own.filter(pl.col("_data") == data[arm]))
        if lost := own.height - parts[-1].height:
            notes.append(
                f"{lost} timing trials of {own['label'][0]} are left out: they had other data; what"
                " follows the order of hashed things is held by PYTHONHASHSEED=0 before the command"
            )
    whole = pl.concat(parts) if parts else keyed
    left_out = frozenset(used["folder"].to_list()) - frozenset(whole["folder"].to_list())
    return ComparableTrials(whole.drop("_machine", "_data"), data, left_out, tuple(notes))


def differing_data(data: Mapping[str, str], arms: Iterable[str]) -> str:
    """Name the digests of data that several arms had; "" where they share one, or have no trials."""
    digests = list(dict.fromkeys(data[arm] for arm in arms if arm in data))
    return f"data differs: {' and '.join(digest or 'none' for digest in digests)}" if len(digests) > 1 else ""


def keys_of(text: str) -> dict[str, str]:
    """Split the comparison keys that the table of trials joins."""
    pairs = (pair.partition("=") for pair in text.split("; ") if pair)
    return {name: value for name, _, value in pairs}


def _machine(text: str) -> str:
    return "; ".join(f"{name}={value}" for name, value in sorted(machine_of(keys_of(text)).items()))


def told_apart(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Say in which comparison keys another machine differs from ours."""
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return ", ".join(
        f"{name} is {theirs.get(name) or 'none'} and not {ours.get(name) or 'none'}" for name in names
    )


def machine_name(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Name another machine: by its device, where that differs, else by what does."""
    device = theirs.get("device", "")
    return device if device and device != ours.get("device") else told_apart(ours, theirs)


def machine_words(progress: Progress) -> str:
    """What trials ran on, in few words; empty without any.

    Such as ``2 CPU cores, AMD EPYC, family 26 model 2 (AVX512, avx512_bf16), torch 2.13.0``.
    """
    records = (trial.record for trial in progress.every)
    facts = next((one.environment for one in records if one.environment), None)
    if facts is None:
        return ""
    device, cores = facts.get("device") or {}, facts.get("cores", "?")
    processor = f"{cores} CPU core{'' if cores == 1 else 's'}"
    quota = facts.get("cpu_limit")  # pauses are subtracted from times, but caches are cold after each
    if quota and quota < facts.get("cores", 0):
        processor += f" of which a quota allows {quota:.2g}"
    gpu = device.get("name") if device.get("type") == "cuda" else ""
    torch = progress.machine.get("torch")
    on = [gpu] if gpu else [processor, _processor(facts)]
    return ", ".join(filter(None, [*on, f"torch {torch}" if torch else ""]))


_DECORATION = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|@ [\d.]+ ?GHz", re.IGNORECASE)
_OF_CAPABILITY = ("avx2", "avx512f", "asimd", "sve")
"""Vectors that the capability of PyTorch's kernels names; what else a processor has may speed products up."""


def _processor(facts: Mapping[str, Any]) -> str:
    """Maker, name and family of the processor, the vectors of PyTorch's kernels, and units beyond these."""
    name = " ".join(_DECORATION.sub(" ", facts.get("cpu_model") or "").split()).replace(" ,", ",")
    capability = facts.get("cpu_capability")
    beyond = (one for one in facts.get("cpu_features", ()) if one not in _OF_CAPABILITY)
    vectors = ", ".join(filter(None, (capability, *beyond)))
    return f"{name} ({vectors})" if name and vectors else name


def _commonest(trials: pl.DataFrame, column: str) -> str | None:
    """The value that most trials have; of several such the one measured last."""
    if trials.height == 0:
        return None
    counts = trials.group_by(column).agg(pl.len().alias("count"), pl.col("started").max().alias("last"))
    return counts.sort("count", "last", column)[column][-1]
