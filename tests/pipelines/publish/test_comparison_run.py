"""The comparison in W&B: effects as numbers, as a table, as bars with intervals, and the report as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from loopback import Loopback
from recorded import IDENTITY, Built, build, publish_here

from perfsweep.pipelines.publish.comparison_run import speed_bars
from perfsweep.pipelines.store.files import write_parquet

EFFECTS: list[dict[str, Any]] = [
    {"toggle": "amp", "level": "bf16", "verdict": "faster", "ratio": 0.5, "low": 0.4, "high": 0.625},
    {"toggle": "gc", "level": "frozen", "verdict": "slower", "ratio": 1.25, "low": 1.2, "high": 1.3},
    {"toggle": "half", "level": "on", "verdict": "different", "ratio": 0.1, "low": 0.09, "high": 0.11},
    {"toggle": "pin", "level": "on", "verdict": None, "ratio": None, "low": None, "high": None},
]
COMMON = {"design": "one_at_a_time", "arm": "a", "base": "b", "outcome": "unsupported"}
COMMON |= {"rounds": 6, "parity": "identical"}
REPORT = "<html><body>all that was found</body></html>"


def compared(built: Built, effects: list[dict[str, Any]] = EFFECTS) -> Built:
    """Write what compare and report leave."""
    write_parquet(
        built.folder.tables_dir / "effects.parquet",
        pl.DataFrame([{**COMMON, **effect, "rulings": ""} for effect in effects]),
    )
    built.folder.report_file.write_text(REPORT)
    return built


@pytest.fixture(autouse=True)
def _tables(tmp_path: Path) -> None:
    (tmp_path / "demo" / "tables").mkdir(parents=True)


def published(place: Path, backend: Loopback) -> Built:
    """A compared sweep, published to the backend."""
    built = compared(build(place, mode="online"))
    assert publish_here(built, server=backend.url).complete
    return built


@pytest.fixture
def online(tmp_path: Path, backend: Loopback) -> Built:
    return published(tmp_path / "demo", backend)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, shared_backend: Loopback) -> Loopback:
    """A backend that such a sweep was published to."""
    place = tmp_path_factory.mktemp("shown") / "demo"
    (place / "tables").mkdir(parents=True)
    published(place, shared_backend)
    return shared_backend


def test_speeds_are_the_inverse_of_ratios_and_the_best_effect_is_one_that_keeps_results(
    shown: Loopback,
) -> None:
    (run,) = shown.runs("compare").values()
    assert (run.group, run.display_name, run.tags) == ("demo", "compare-demo", ["Spinner", "demo"])
    said = run.summary_values
    best = [said[name] for name in ("bench_best", "speed", "speed_low", "speed_high")]
    assert best == ["amp=bf16", 2, 1.6, 2.5]
    assert [
        said[f"effect/one_at_a_time/amp_bf16/{name}"] for name in ("speed", "speed_low", "speed_high")
    ] == [2, 1.6, 2.5]
    assert said["effect/one_at_a_time/pin_on/verdict"] == "unsupported"
    assert "effect/one_at_a_time/pin_on/speed" not in said


def test_table_bars_and_report_are_its_media(shown: Loopback) -> None:
    run = shown.runs("compare")[f"{IDENTITY}-compare"]
    (row,) = run.rows
    assert (row["effects"]["_type"], row["effects"]["nrows"]) == ("table-file", len(EFFECTS))
    assert row["report"]["_type"] == "html-file"
    assert run.files[row["report"]["path"]].decode() == REPORT
    bars = json.loads(run.files[row["speeds"]["path"]])
    assert len(bars["data"][0]["y"]) == 3
    table = json.loads(run.files[row["effects"]["path"]])
    first = dict(zip(table["columns"], table["data"][0], strict=True))
    assert {
        "design": "one_at_a_time",
        "level": "bf16",
        "speed": 2,
        "parity": "identical",
    }.items() <= first.items()


def test_the_same_comparison_is_not_sent_again_and_another_replaces_it(
    online: Built, backend: Loopback
) -> None:
    assert publish_here(online, server=backend.url).new == 0
    compared(online, EFFECTS[:2])
    done = publish_here(online, server=backend.url)
    assert [run.note for run in done.runs] == ["already complete", "already complete", "replaced"]
    assert list(backend.runs("compare")) == [f"{IDENTITY}-compare-g2"]
    for table in (one for one in backend.store.artifacts.values() if one.type == "run_table"):
        table.state = "PENDING"
    assert [run.note for run in publish_here(online, server=backend.url).runs][-1] == "replaced", (
        "a file lacks"
    )


def test_a_damaged_table_of_effects_is_named_and_the_rest_is_published(tmp_path: Path) -> None:
    built = compared(build(tmp_path / "demo"))
    file = built.folder.tables_dir / "effects.parquet"
    file.write_bytes(file.read_bytes()[:50])
    done = publish_here(built)
    assert len(done.runs) == 2
    assert done.warning is not None
    assert f"{file} is damaged; make it again with `perfsweep compare {built.folder.path}`" in done.warning


def test_bars_carry_their_intervals_and_the_fastest_is_on_top() -> None:
    names = ("toggle", "level", "verdict", "speed", "speed_low", "speed_high")
    rows = [("a", "1", "slower", 0.8, 0.7, 0.95), ("b", "", "different", 3.0, 2.0, 5.0)]
    shown = [{**COMMON, **dict(zip(names, row, strict=True))} for row in rows]
    figure = speed_bars(shown)
    (none,) = figure.layout.shapes
    assert (none.x0, none.x1) == (1, 1), "a line stands where nothing changes"
    bars = figure.data[0]
    assert list(bars.y) == ["a=1", "b"], "one design is not named at each bar"
    two = speed_bars([shown[0], {**shown[1], "design": "ladder"}])
    assert list(two.data[0].y) == ["a=1 (one at a time)", "b (ladder)"]
    assert list(bars.x) == [0.8, 3.0]
    usual, red = bars.marker.color
    assert (usual, red) == ("#2a78d6", "#c0392b"), "what computes something else is red"
    assert [list(bars.error_x.array), list(bars.error_x.arrayminus)] == [
        pytest.approx([0.15, 2.0]),
        pytest.approx([0.1, 1.0]),
    ]
