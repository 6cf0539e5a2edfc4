"""Claims ruled by effects, memory or the figures of arms, and the ledger of all of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from measured import change, compared, simulated, spec_of, write
from planned_sweeps import record
from toys.spinner import Spinner

from perfsweep.pipelines.analysis.claim_ledger import FILE, gather_rulings, ledger
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import RuledClaim, effect_name
from perfsweep.pipelines.analysis.rulings import SCHEMA, figure_value
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder, TrialRecord, write_evidence
from perfsweep.workloads.api import Claim, Device, Evidence, Level, Toggle

SLABS = tuple(range(2, 12))


def claim(text: str, *arms: dict, **judged: object) -> Claim:
    return Claim(text, "toy", "9", arms, **judged)  # type: ignore[arg-type]


def with_claims(monkeypatch, command, *claims: Claim, design: DesignConfig, time_of, **noise) -> tuple:
    monkeypatch.setattr(Spinner, "claims", claims)
    return simulated(command(design, measure={"rounds": 10}), time_of, **noise)


def ruled(found: Comparison, text: str) -> RuledClaim:
    (one,) = [ruling for ruling in found.rulings if ruling.claim.text == text]
    return one


def test_a_ruling_reads_the_interval_that_is_corrected_for_the_sweep(command, monkeypatch) -> None:
    folder, manifest = with_claims(
        monkeypatch,
        command,
        claim("half", {"work": "single"}, low=1.5, high=2.5),
        design=DesignConfig("one_at_a_time", levels={"work": ["single"], "slab": list(SLABS)}),
        time_of=lambda levels: 1.0 if levels["work"] == "single" else 2.0,
    )
    found = compared(folder, manifest)
    (effect,) = [effect for effect in found.effects if effect.effect.toggle == "work"]
    (one,) = effect.rulings
    assert one.ruling is Ruling.CONFIRMED and one.ratio == effect.ratio
    assert one.low is not None and effect.low is not None and one.low < effect.low
    assert one.text.startswith("confirmed (2.00x faster")


@pytest.mark.parametrize(
    ("saved_bytes", "ruling"),
    [
        (2**24, Ruling.CONFIRMED),
        (2**20, Ruling.REFUTED),  # less than a huge page: no difference
    ],
)
def test_less_memory_is_more_than_an_allocators_rounding(
    command, monkeypatch, saved_bytes: int, ruling: Ruling
) -> None:
    folder, manifest = with_claims(
        monkeypatch,
        command,
        claim("less", {"work": "single"}, kind="memory", high=1.0),
        design=DesignConfig("one_at_a_time", levels={"work": ["single"]}),
        time_of=lambda levels: 1.0,
    )
    arm = manifest.effects[0].pairs[0][0]
    for file in folder.path.glob("trials/*/*-r*/record.json"):
        change(file, peak_bytes=2**26 - (saved_bytes if file.parts[-3] == arm else 0))
    one = ruled(compared(folder, manifest), "less")
    assert one.ruling is ruling and one.figure == "memory"
    assert "speed" not in one.text


def test_a_predicate_shows_its_own_figure_and_never_a_speed(command, monkeypatch) -> None:
    folder, manifest = counted_sweep(command, monkeypatch, {"work": "single"})
    found = compared(folder, manifest)
    one = ruled(found, "counts four")
    assert (one.text, one.ratio) == ("confirmed: it acts, and is faster here (count 4)", None)
    assert ruled(found, "a cache halves compiling").value == pytest.approx(0.1)


def test_a_figure_of_an_arm_that_computes_something_different_confirms_nothing(command, monkeypatch) -> None:
    folder, manifest = counted_sweep(command, monkeypatch, {"work": "single"}, trace=-1.0)
    found = compared(folder, manifest)
    assert ruled(found, "counts four").text == "undecided: different (count 4)"
    assert ruled(found, "keeps results").text == "refuted (results_kept 0)"


def counted_sweep(command, monkeypatch, arm: dict, trace: float = 1.0) -> tuple[SweepFolder, Manifest]:
    """A sweep of one arm whose evidence counts four, with `trace` for its results."""
    folder, manifest = with_claims(
        monkeypatch,
        command,
        claim("counts four", arm, kind="predicate", figure="count", low=4, high=4),
        claim("keeps results", arm, kind="predicate", figure="results_kept", low=1),
        claim("a cache halves compiling", arm, kind="predicate", figure="warm_compile_s/compile_s", high=0.5),
        design=DesignConfig("one_at_a_time", levels={"work": ["single"]}),
        time_of=lambda levels: 1.0 if levels["work"] == "single" else 2.0,
    )
    name = manifest.effects[0].pairs[0][0]
    spec = spec_of(manifest, name, "p000", None, Kind.EVIDENCE)
    write(folder, spec_of(manifest, name, "p000", None, Kind.COUNTING), counters={"compile_s": 20.0})
    for file in folder.path.glob(f"trials/{name}/*-r*/record.json"):
        change(file, compile_s=2.0)
    write_evidence(folder.trial_dir(spec), Evidence({"trace": trace * np.ones(4)}, {"count": 4.0}))
    return folder, manifest


def test_a_predicate_about_an_arm_without_an_effect_is_ruled_and_once(command, monkeypatch) -> None:
    seconds = {"kind": "predicate", "figure": "seconds_per_iteration", "low": 0.0}
    claims = (
        claim("the naive path takes time", {"slab": 1}, **seconds),
        claim("so does the other", {"work": "single"}, **seconds),
        claim("one that nobody planned", {"slab": 7}, **seconds),
        claim("the naive path is fast", {"slab": 1}, low=2.0),
    )
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    made = with_claims(monkeypatch, command, *claims, design=design, time_of=lambda levels: 1.0)
    found = [(one.claim.text, one.subject, one.design) for one in compared(*made).rulings]
    assert found == [
        ("so does the other", "work=single", "one_at_a_time"),
        ("the naive path takes time", "baseline", "arm"),
    ]
    assert ruled(compared(*made), "the naive path takes time").ruling is Ruling.CONFIRMED


def test_a_claim_about_a_listed_arm_names_it_as_its_effect_does(command, monkeypatch) -> None:
    design = DesignConfig("arms", arms={"fast": {"work": "single"}})
    half = claim("half", {"work": "single"}, low=1.5)
    found = compared(*with_claims(monkeypatch, command, half, design=design, time_of=lambda levels: 1.0))
    assert ruled(found, "half").subject == effect_name(found.effects[0])


def test_a_way_that_this_device_refuses_is_not_measurable_and_leaves_the_claim_refuted(
    command, monkeypatch
) -> None:
    ways = claim("one way or the other", {"work": "single"}, {"device_only": "on"}, low=1.5)
    design = DesignConfig("one_at_a_time", levels={"work": ["single"], "device_only": ["on"]})
    made = with_claims(monkeypatch, command, ways, design=design, time_of=lambda levels: 1.0)
    folder, manifest = made
    (refused,) = [arm.id for arm in manifest.arms if arm.levels["device_only"] == "on"]
    for file in folder.path.glob(f"trials/{refused}/*/record.json"):
        change(file, outcome="unsupported", failure={"type": "X", "message": "no"})
    found = {one.subject: (one.ruling, one.reason) for one in compared(folder, manifest).rulings}
    assert found == {
        "work=single": ("refuted", ""),
        "device_only=on": ("not measurable here", "device_only=on needs a GPU"),
    }
    rows = [
        ruling_row(ruling="refuted"),
        ruling_row(ruling="not measurable here", subject="pin=on", reason="pin=on acts on CUDA only"),
    ]
    (entry,) = ledger("w", [FASTER], TOGGLES, table(*rows), CPU)
    assert entry.ruling == "refuted"
    assert entry.evidence.endswith("; not measurable here: pin=on acts on CUDA only")


def timing(region_ns: int, iterations: int = 10, units: float = 100.0) -> TrialRecord:
    return record("a", round=0, region_ns=region_ns, iterations=iterations, units=units)


TIMINGS = [timing(10**9), timing(3 * 10**9), timing(2 * 10**9)]
COUNTS = {"passes": 200.0, "slabs": 2.0, "none": 0.0, "device_busy_ns": 4e6}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("passes", 200.0),
        ("unknown", None),
        ("passes/slabs", 100.0),
        ("passes/none", None),
        ("passes+slabs/slabs", 201.0),
        ("passes/slabs*slabs", 50.0),
        ("seconds_per_iteration", 0.2),
        ("device_busy_share", 0.2),
    ],
)
def test_a_figure_is_counted_derived_or_a_ratio(name: str, value: float | None) -> None:
    assert figure_value(name, COUNTS.get, TIMINGS) == (None if value is None else pytest.approx(value))


CPU = Device(compiler=True)
PIN = Level("on", unsupported=lambda device: None if device.type == "cuda" else "acts on CUDA only")
TOGGLES = (Toggle("amp", (Level("off"), Level("bf16")), "doc"), Toggle("pin", (Level("off"), PIN), "doc"))
ALL = Device(type="cuda", name="big", capability=(9, 0), count=8, memory_bytes=10**12, compiler=True)
FASTER = Claim("amp doubles speed", "guide", "2", ({"amp": "bf16"},), low=2.0, high=3.0)
ON_GPU = Claim("pinning helps", "guide", "3", ({"pin": "on"},), kind="qualitative", word="helps")
EITHER = Claim(
    "either helps", "guide", "3", ({"pin": "on"}, {"amp": "bf16"}), kind="qualitative", word="helps"
)
LARGE = Claim(
    "large is slow",
    "guide",
    "3",
    ({"amp": "off"},),
    kind="predicate",
    figure="s",
    low=1.0,
    setting={"data": ("full", None)},
)
RULE = Claim("measure before you change", "guide", "4", (), kind="predicate")


def ruling_row(**fields) -> dict[str, object]:
    row = dict.fromkeys(SCHEMA) | {
        "workload": "w",
        "section": FASTER.section,
        "claim": FASTER.text,
        "reason": "",
        "machine": "cpu",
        "subject": "amp=bf16",
    }
    return row | {"sweep": "s", "design": "one_at_a_time", "ratio": 0.5, "low": 0.4, "high": 0.6, **fields}


def table(*rows) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA)


def test_a_decided_sweep_counts_more_than_an_undecided_one_and_another_workloads_not_at_all():
    rows = [
        ruling_row(ruling="undecided"),
        ruling_row(ruling="refuted"),
        ruling_row(ruling="confirmed", workload="other"),
    ]
    (entry,) = ledger("w", [FASTER], TOGGLES, table(*rows), CPU)
    assert (entry.ruling, entry.evidence) == ("refuted", "2.00x faster [1.67 .. 2.50] (amp=bf16 in s, cpu)")


@pytest.mark.parametrize("other", ["undecided", "undecided: different", "refuted", "confirmed"])
def test_what_one_way_refutes_another_may_confirm_or_leave_open(other):
    ruling, _, reason = other.partition(": ")
    second = ruling_row(ruling=ruling, reason=reason, subject="pin=on", design="arms")
    (entry,) = ledger("w", [FASTER], TOGGLES, table(ruling_row(ruling="refuted"), second), CPU)
    expected = other if other in ("undecided", "confirmed") else "refuted"
    assert (entry.ruling, "but refuted" in entry.evidence) == (expected, expected != "refuted")


def test_of_one_way_a_toggle_by_itself_says_more_than_one_among_others_and_an_interval_more_than_a_word():
    among = ruling_row(ruling="exceeded", design="leave_one_out")
    (entry,) = ledger("w", [FASTER], TOGGLES, table(among, ruling_row(ruling="refuted")), CPU)
    assert entry.ruling == "refuted" and "but exceeded" in entry.evidence
    nothing = dict.fromkeys(("ratio", "low", "high"))
    noisy = ruling_row(ruling="undecided", reason="too noisy", sweep="noisy", **nothing)
    (entry,) = ledger("w", [FASTER], TOGGLES, table(noisy, ruling_row(ruling="undecided")), CPU)
    assert "too noisy" not in entry.evidence


@pytest.mark.parametrize("high", [0.6, 1000.0])
def test_of_two_sweeps_that_decide_the_narrower_interval_is_quoted(high):
    wide = ruling_row(ruling="confirmed", high=high)
    narrow = ruling_row(ruling="confirmed", sweep="long", low=0.48, high=0.52)
    (entry,) = ledger("w", [FASTER], TOGGLES, table(wide, narrow), CPU)
    assert "in long" in entry.evidence


@pytest.mark.parametrize(
    ("claim", "devices", "ruling", "word"),
    [
        (FASTER, [CPU], "not measured yet", "amp=bf16"),
        (ON_GPU, [CPU], "not measurable here", "needs a CUDA device (pin=on acts on CUDA only)"),
        (EITHER, [CPU], "not measured yet", "pin=on or amp=bf16"),
        (LARGE, [CPU], "not measured yet", "amp=off workload.data=full|null"),
        (RULE, [CPU], "not measurable here", "nothing to rule on"),
        (ON_GPU, [ALL], "not measured yet", "pin=on"),
        (ON_GPU, [CPU, Device("cuda", 1)], "not measured yet", "tests it: pin=on"),  # jobs may have one
    ],
)
def test_without_a_ruling_an_entry_says_what_would_bring_one_or_why_nothing_can(claim, devices, ruling, word):
    (entry,) = ledger("w", [claim], TOGGLES, table(), *devices)
    assert entry.ruling == ruling and word in entry.evidence


def test_a_damaged_table_is_named_and_the_others_count(tmp_path):
    for name, content in (("a", None), ("b", b"not parquet")):
        file = tmp_path / name / FILE
        file.parent.mkdir(parents=True)
        table(ruling_row(ruling="confirmed")).write_parquet(file) if content is None else file.write_bytes(
            content
        )
    found, damaged = gather_rulings(tmp_path)
    assert found.height == 1
    assert len(damaged) == 1 and "b" in damaged[0]
