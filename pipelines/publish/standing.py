"""What `compare` says of each arm, from its tables: W&B orders, scatters and ranks runs by that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsweep.pipelines.statistics.verdicts import Verdict, verdict_word
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.pipelines.terminal import shell_line
from perfsweep.workloads.errors import RecordError

SPEED = {"ratio": "speed", "high": "speed_low", "low": "speed_high"}
"""Columns of ratios of times, and what their inverses are called: the bounds change places."""

NOT_RANKED = frozenset({Verdict.DIFFERENT.value, Verdict.FEWER_UNITS.value})
"""Verdicts on arms that compute something else or less: their time is no answer."""

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Standing:
    """What a comparison says of one arm.

    Attributes
    ----------
    ns_per_unit : time per unit by which the comparison orders arms; None where it does not rank the arm
    peak_bytes : peak memory; None where nothing measured it
    speed : `speed` against the baseline with `speed_low` and `speed_high`, its 95 % interval, as far as
        there are
    verdict : of the effect against the baseline; empty without one
    """

    ns_per_unit: float | None = None
    peak_bytes: float | None = None
    speed: tuple[tuple[str, float], ...] = ()
    verdict: str = ""

    @property
    def bench(self) -> dict[str, float]:
        """Figures of the run's summary below `bench`."""
        return {} if self.ns_per_unit is None else {"ms_per_unit": self.ns_per_unit / _NS_PER_MS}

    @property
    def summary(self) -> dict[str, Any]:
        """Other figures of the run's summary."""
        return {**dict(self.speed), **({"verdict": self.verdict} if self.verdict else {})}


def standings(folder: SweepFolder, manifest: Manifest) -> dict[str, Standing]:
    """Read what the last comparison says of each arm (id); nothing before the first one.

    Raises
    ------
    RecordError
        A table is damaged.
    """
    if not (folder.tables_dir / "arms.parquet").exists():
        return {}
    effects = {str(row.get("id")): row for row in table_rows(folder, "effects")}
    arms = (row for row in table_rows(folder, "arms") if row.get("paired_ns"))
    return {row["arm"]: _standing(row, list(_effects_of(manifest, row["arm"], effects))) for row in arms}


def table_rows(folder: SweepFolder, name: str) -> list[dict[str, Any]]:
    """Read a table of the comparison.

    Raises
    ------
    RecordError
        It is missing or damaged.
    """
    import polars as pl  # takes a second, and most of publishing needs none

    file = folder.tables_dir / f"{name}.parquet"
    try:
        return pl.read_parquet(file).to_dicts()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise damaged(file, folder, error) from error


def damaged(file: Path, folder: SweepFolder, why: Exception) -> RecordError:
    """Make the error of a table that cannot be used."""
    remedy = f"make it again with `{shell_line('compare', folder.path)}`"
    return RecordError(f"{file} is damaged; {remedy}: {why}")


def inverse(value: float | None) -> float | None:
    """Turn a ratio of times into one of speeds."""
    return 1 / value if value else None


def _effects_of(
    manifest: Manifest, arm: str, effects: dict[str, dict[str, Any]]
) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Effects of an arm against one other, and whether that is the baseline."""
    baseline = next(iter(manifest.sweep.references.values()), None)
    for effect in manifest.effects:
        row = effects.get(effect.id)
        if row and not effect.contrast and len(effect.pairs) == 1 and effect.pairs[0][0] == arm:
            yield effect.pairs[0][1] == baseline, row


def verdict_of(effect: dict[str, Any]) -> str:
    """The verdict on an effect in words; without one, its outcome says why."""
    return verdict_word(effect["verdict"] or effect["outcome"], effect.get("reason"))


def _standing(arm: dict[str, Any], effects: list[tuple[bool, dict[str, Any]]]) -> Standing:
    ranked = not any(row["verdict"] in NOT_RANKED for _, row in effects)
    own = next((row for against_baseline, row in effects if against_baseline), None)
    said = {new: inverse(own[old]) for old, new in SPEED.items()} if own and ranked else {}
    return Standing(
        ns_per_unit=arm["paired_ns"] if ranked else None,
        peak_bytes=arm["peak_bytes"] or None,
        speed=tuple((name, value) for name, value in said.items() if value is not None),
        verdict=verdict_of(own) if own else "",
    )
