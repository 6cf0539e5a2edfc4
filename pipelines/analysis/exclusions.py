"""What may not be compared, or not be judged: other machines and data, effects ruled out, times too noisy.

Nothing is ever computed over a mixture of machines, and the report still comes out: of several the one with
the most trials counts, and an effect between arms of different data has no time. Comparing and tuning ask
here alone why an arm or effect has none. Pure: records and parity go in, a reason or nothing comes out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import polars as pl

from perfsweep.pipelines.analysis.arm_records import NOISY, ArmRecords, counter_changes
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.plan.power import USELESS, power, scaled
from perfsweep.pipelines.statistics.verdicts import Judgement, ReasonCode, Verdict
from perfsweep.pipelines.store.progress import DATA, Progress, machine_of
from perfsweep.pipelines.store.records import Effect, Manifest, Outcome, TrialRecord
from perfsweep.workloads.declarations import ANYTHING

BASE = "base "
"""Before an outcome: the arm may well have run, but what it is measured against did not."""
OTHER_DATA = "other data"
"""Instead of an outcome: the arms did not work on the same data."""

UNMOVED = (ReasonCode.HOLDS_ZERO, ReasonCode.INSIDE_MARGIN)
"""Of verdicts on levels that did nothing: the interval of their time holds none."""
DID_NOTHING = "this flag did nothing here: same operators, same results, no change of time or memory"
SAME_MEMORY = 0.02
"""Share by which the peak memory of equal arms may differ."""
OTHER_UNITS = "other units"
"""The same where they were not counted in the same units."""
SAY_UNITS = "say how many units an iteration has with workload.units"


@dataclass(frozen=True)
class Exclusion:
    """Why there is no time to compare: how a trial ended, or a word in its place, and the reason in words."""

    outcome: str
    reason: str = ""


class Exclusions:
    """Rules arms and effects of one sweep out.

    Parameters
    ----------
    data : digest of the data that each arm (id) worked on
    compile_s : seconds that an arm may compile for with nothing compiled yet; None: any
    """

    def __init__(
        self,
        manifest: Manifest,
        records: ArmRecords,
        agreement: Agreement,
        data: Mapping[str, str] | None = None,
        compile_s: float | None = None,
    ) -> None:
        self._manifest, self._records, self._agreement = manifest, records, agreement
        self._data, self._compile_s = data or {}, compile_s

    def of_effect(self, effect: Effect) -> Exclusion | None:
        """Why an effect has no time: an arm of it never ran, the data differ, or the level does nothing.

        An arm that changes results keeps its times, and gets a verdict in their place.
        """
        for arm in effect.weights:
            if failure := self._failure(arm):
                return failure if _own(effect, arm) else self._of_base(arm, failure)
        if differing := differing_data(self._data, effect.weights):
            return Exclusion(OTHER_DATA, differing)
        if len(units := self._units(effect)) > 1:
            return Exclusion(OTHER_UNITS, f"counted in {'s and '.join(sorted(units))}s: {SAY_UNITS}")
        return self._inert(effect)

    def _units(self, effect: Effect) -> set[str]:
        """What the arms of an effect were counted in."""
        return {record.unit for arm in effect.weights for record in self._records.timed(arm)[:1]}

    def idle(
        self,
        effects: Iterable[Effect],
        parities: Mapping[str, ParityResult],
        verdicts: Mapping[str, Judgement],
    ) -> dict[str, Exclusion]:
        """Effects, by id, of levels that nothing shows to act: not counts, results, time or memory."""
        why = Exclusion(Outcome.INERT.value, DID_NOTHING)
        return {
            one.id: why
            for one in effects
            if one.id in verdicts
            and verdicts[one.id].code in UNMOVED
            and parities[one.id].verdict is ParityVerdict.IDENTICAL
            and self._counts_the_same(one)
        }

    def _counts_the_same(self, effect: Effect) -> bool:
        """Whether a level that may show in anything shows in no count of its arm, and not in its memory."""
        if self._witness(effect) != ANYTHING:
            return False
        arm, base = effect.pairs[0]
        ours, theirs = (self._records.counters(name) for name in (arm, base))
        moved = [one for one in counter_changes(theirs, ours) if not one.counter.startswith(NOISY)]
        memory = [self._records.median(name, "peak_bytes") or 0.0 for name in (arm, base)]
        return bool(ours and theirs and not moved) and max(memory) <= (1 + SAME_MEMORY) * min(memory)

    def of_arm(self, arm: str) -> Exclusion | None:
        """Why no search may recommend an arm: it fails, breaks a limit, is inert, or may compute otherwise.

        Stricter than a comparison: a single round without memory is enough, and so are unchecked results.
        """
        if broken := self._failure(arm) or self._out_of_memory(arm) or self._compiles_too_long(arm):
            return broken
        reference = next(iter(self._manifest.sweep.references.values()))
        if arm == reference or not self._records.all(arm):
            return None
        by_itself = (e for e in self._manifest.effects if e.design == "one_at_a_time" and _own(e, arm))
        return _first(map(self._inert, by_itself)) or self._other_results(arm, reference)

    def _failure(self, arm: str) -> Exclusion | None:
        """An arm of which no timing trial ended well."""
        failed = self._records.failed(arm)
        return _ended(failed[0]) if failed and not self._records.timed(arm) else None

    def _of_base(self, arm: str, failure: Exclusion) -> Exclusion:
        label = self._manifest.arm(arm).label
        return Exclusion(BASE + failure.outcome, f"its base {label}: {failure.reason}")

    def _out_of_memory(self, arm: str) -> Exclusion | None:
        return _first(_ended(one) for one in self._records.failed(arm) if one.outcome is Outcome.OOM)

    def _compiles_too_long(self, arm: str) -> Exclusion | None:
        cold_s = self._records.cold_compile_s(arm) or 0.0
        if self._compile_s is None or cold_s <= self._compile_s:
            return None
        return Exclusion("compile_s", f"compiles for {cold_s:.1f} s, and tune.compile_s={self._compile_s:g}")

    def _inert(self, effect: Effect) -> Exclusion | None:
        """A level whose witness, the counter that it is declared to change, did not change."""
        if (witness := self._witness(effect)) is None:
            return None
        with_it, without_it = ((self._records.counters(name) or {}).get(witness) for name in effect.pairs[0])
        if with_it is None or with_it != without_it:
            return None
        return Exclusion(Outcome.INERT.value, f"{witness} is the same with and without it")

    def _witness(self, effect: Effect) -> str | None:
        """The counter that the level of a single pair is declared to change; None where there is none."""
        if len(effect.pairs) != 1 or effect.contrast:
            return None
        level = self._agreement.levels(self._manifest.arm(effect.pairs[0][0])).get(effect.toggle)
        return level.witness if level else None

    def _other_results(self, arm: str, reference: str) -> Exclusion | None:
        parity = self._agreement.between(arm, reference)
        if parity.verdict is ParityVerdict.DIFFERENT:
            why = f"changes results: {parity.reason}" if parity.reason else "changes results"
            return Exclusion("different", why)
        if parity.verdict is ParityVerdict.UNCHECKED:
            return Exclusion("unchecked", f"its results could not be checked: {parity.reason}")
        return None


def _own(effect: Effect, arm: str) -> bool:
    """Whether an effect is about this arm, and not measured against it."""
    return bool(effect.contrast) or any(arm == own for own, _ in effect.pairs)


def _ended(record: TrialRecord) -> Exclusion:
    reason = record.failure.message.partition("\n")[0] if record.failure else ""
    return Exclusion(record.outcome.value, reason)


def _first(exclusions: Iterable[Exclusion | None]) -> Exclusion | None:
    return next((exclusion for exclusion in exclusions if exclusion), None)


class HoldingBack:
    """Holds verdicts of one sweep back, by the timing trials that count (`used`)."""

    def __init__(self, manifest: Manifest, used: pl.DataFrame, records: ArmRecords) -> None:
        self._manifest, self._records = manifest, records
        # Of this object, not of the class: a cache of its methods would keep every comparison's records.
        self._power = functools.cache(lambda rounds: power(manifest, replications=rounds))
        sound = used.filter(pl.col("disturbed") == "")
        self._disturbed = set(used["arm"].to_list()) - set(sound["arm"].to_list())

    def of(self, effect: Effect, rounds: int) -> Judgement | None:
        """Judge an effect whose times say nothing, of so many rounds or generations; None of any other."""
        if self._manifest.sweep.measure.look:
            reason = "only a look (measure.look)"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.ONLY_A_LOOK)
        if effect.weights.keys() <= self._disturbed:
            reason = "every trial of its arms was disturbed"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.ALL_DISTURBED)
        if reason := self._unlike_beats(effect):
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.UNLIKE_BEATS)
        if scaled(effect, self._power(rounds)) > USELESS:
            reason = "one round has no interval" if rounds == 1 else f"{rounds} rounds decide nothing"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.TOO_FEW_ROUNDS)
        return None

    def _unlike_beats(self, effect: Effect) -> str:
        """Why arms whose slow iterations come without a period are not comparable; "" where they are.

        The regions of one arm may contain more slow iterations than those of another, the same in every
        round. More rounds then only narrow a wrong interval.
        """
        beats = [self._records.beat(arm) for arm in effect.weights]
        if not any(beat.irregular for beat in beats):
            return ""
        least, most = min(beat.each for beat in beats), max(beat.each for beat in beats)
        # What the arms' times would differ by for this reason alone.
        if (
            not most
            or (1 - least / most) * max(beat.share for beat in beats) <= self._manifest.sweep.measure.margin
        ):
            return ""
        return (
            f"regions held unlike numbers of heavy iterations, {least:.2g} and {most:.2g} each, which come at"
            " no regular distance: measure longer regions with measure.iterations"
        )


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
