"""The ledger: every claim once, ruled by files only, with a reason where there is no ruling."""

from __future__ import annotations

import polars as pl
import pytest

from perfsweep.pipelines.analysis.across.claim_ledger import FILE, gather_rulings, ledger
from perfsweep.pipelines.analysis.rulings import SCHEMA
from perfsweep.workloads.api import Claim, Device, Level, Toggle

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


def ruled(**fields) -> dict[str, object]:
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


def test_a_ruling_names_its_evidence():
    (entry,) = ledger("w", [FASTER], TOGGLES, table(ruled(ruling="confirmed")), CPU)
    assert (entry.ruling, entry.evidence) == ("confirmed", "2.00x faster [1.67 .. 2.50] (amp=bf16 in s, cpu)")


def test_a_decided_sweep_counts_more_than_an_undecided_one_and_another_workloads_not_at_all():
    rows = [ruled(ruling="undecided"), ruled(ruling="refuted"), ruled(ruling="confirmed", workload="other")]
    assert ledger("w", [FASTER], TOGGLES, table(*rows), CPU)[0].ruling == "refuted"


@pytest.mark.parametrize("other", ["undecided", "refuted", "confirmed"])
def test_what_one_way_refutes_stays_open_while_another_way_is_undecided(other):
    rows = [ruled(ruling="refuted"), ruled(ruling=other, subject="pin=on", design="arms")]
    (entry,) = ledger("w", [FASTER], TOGGLES, table(*rows), CPU)
    expected = "undecided" if other == "undecided" else "refuted"
    assert (entry.ruling, "but " in entry.evidence) == (expected, other != "refuted")


@pytest.mark.parametrize(
    ("claim", "device", "ruling", "word"),
    [
        (FASTER, CPU, "not measured yet", "amp=bf16"),
        (ON_GPU, CPU, "not measurable here", "needs a CUDA device (pin=on acts on CUDA only)"),
        (EITHER, CPU, "not measured yet", "pin=on or amp=bf16"),
        (LARGE, CPU, "not measured yet", "amp=off workload.data=full|null"),
        (RULE, CPU, "not measurable here", "nothing to rule on"),
        (RULE, ALL, "not measurable here", "nothing to rule on"),
        (ON_GPU, ALL, "not measured yet", "pin=on"),
    ],
)
def test_without_a_ruling_an_entry_says_what_would_bring_one_or_why_nothing_can(claim, device, ruling, word):
    (entry,) = ledger("w", [claim], TOGGLES, table(), device)
    assert entry.ruling == ruling and word in entry.evidence


def test_what_jobs_may_measure_is_not_called_not_measurable():
    unknown = Device("cuda", 1)
    (entry,) = ledger("w", [ON_GPU], TOGGLES, table(), CPU, unknown)
    assert (entry.ruling, entry.evidence) == ("not measured yet", "tests it: pin=on")
    (entry,) = ledger("w", [ON_GPU], TOGGLES, table(), CPU, CPU)
    assert entry.ruling == "not measurable here"


def test_a_damaged_table_is_named_and_the_others_count(tmp_path):
    for name, content in (("a", None), ("b", b"not parquet")):
        file = tmp_path / name / FILE
        file.parent.mkdir(parents=True)
        table(ruled(ruling="confirmed")).write_parquet(file) if content is None else file.write_bytes(content)
    found, damaged = gather_rulings(tmp_path)
    assert found.height == 1
    assert len(damaged) == 1 and "b" in damaged[0]
