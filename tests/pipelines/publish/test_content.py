"""Which runs a sweep has, and what is in them: every number as recorded, under names that W&B sorts by."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import EPOCH_NS, FAST, IDENTITY, NAIVE, PACK, TIMED, WARM, Built, arrays_of, build, timed_rows

from perfsweep.pipelines.publish.content import RunContent, check_arrays, run_content
from perfsweep.pipelines.publish.history_rows import Timing
from perfsweep.pipelines.publish.runs import COMPARE, PROFILE, SweepRuns, identity, profile_content
from perfsweep.pipelines.store.profiles import Cost, Profile, arm_folder, write_profile
from perfsweep.pipelines.store.records import Arm, Kind, Outcome, Pack, SweepFolder, TrialRecord
from perfsweep.pipelines.units import MB
from perfsweep.workloads.errors import ConfigError, RecordError


def test_every_timed_iteration_becomes_a_row_with_exactly_the_recorded_numbers(published: Built) -> None:
    rows = timed_rows(published.run_file(NAIVE))
    assert len(rows) == 3 * TIMED
    for index, row in enumerate(rows):
        number, inside = divmod(index, TIMED)
        arrays = arrays_of(NAIVE, number)
        end_ns = int(arrays["start_ns"][inside] - arrays["start_ns"][0] + arrays["wall_ns"][inside])
        wanted = {
            "iter/index": index,
            "iter/round": number,
            "iter/in_round": inside,
            "iter/ms": arrays["wall_ns"][inside] / 1e6,
            "iter/device_ms": arrays["device_ns"][inside] / 1e6,
            "iter/ms_forward": arrays["host_forward"][inside] / 1e6,
            "iter/device_ms_forward": arrays["device_forward"][inside] / 1e6,
            "iter/t_s": end_ns / 1e9,
            "iter/loss": arrays["log_loss"][inside],
            "iter/lr_0": 0.1,
            "_timestamp": (int(arrays["epoch_ns"][0]) + end_ns) / 1e9,
        }
        missing = {"iter/loss"} if inside == 2 else {"iter/device_ms"} if inside == 4 else set()
        ours = {name: value for name, value in row.items() if name not in ("_step", "_runtime")}
        assert ours == {
            name: value for name, value in wanted.items() if name not in missing
        }  # no tolerance: floats travel exactly


def test_warm_up_has_an_axis_of_its_own_and_ends_where_the_region_starts(published: Built) -> None:
    run = published.run_file(NAIVE)
    for axis, count in (("iter/index", 3 * TIMED), ("warmup/index", 3 * WARM)):
        assert run.step_metrics[axis.replace("index", "*")] == axis
        assert [row[axis] for row in run.history if axis in row] == list(range(count))
    rows = [row for row in run.history if row.get("warmup/round") == 1]
    walls = arrays_of(NAIVE, 1)["warmup_wall_ns"]
    assert [row["warmup/ms"] for row in rows] == [wall / 1e6 for wall in walls]
    assert not any(name.startswith("iter/") for row in rows for name in row)
    region_s = (EPOCH_NS + 10**10) / 1e9
    assert rows[-1]["_timestamp"] == region_s
    before_s = region_s - walls[-1] / 1e9
    assert rows[-2]["_timestamp"] == pytest.approx(before_s, abs=1e-6), "a double of now resolves 0.24 us"


def test_the_configuration_names_every_level_the_machine_and_nothing_else(published: Built) -> None:
    config = {
        "workload": "toys.spinner:Spinner",
        "workload_config.width": 8,
        "workload_config.sizes": "[1, 2]",
        "variant": "naive",
        "baseline": True,
        "toggles.amp": "off",
        "toggles.slab_size": "1",  # text, because another arm has `all`
        "arm": NAIVE.id,
        "pack": PACK.id,
        "seed": 5,
        "sweep_id": "demo",
        "code": "c0de",
        "schema_version": 1,
        "hw.gpu": "H200",
        "hw.count": 1,
        "hw.driver": "570",
        "sw.torch": "2.13.0",
        "sw.cuda": None,
        "slurm.job_id": "7",
        "environment.host": "n1",
        "environment.cpu_features": '["avx2", "amx"]',
        "environment.gpus": '[{"name": "H200", "uuid": "GPU-1"}]',
    }
    assert published.run_file(NAIVE).config == config
    own = {"variant": "late", "baseline": False, "arm": FAST.id}
    levels = {"toggles.amp": "bf16", "toggles.slab_size": "all"}
    assert published.run_file(FAST).config == {**config, **own, **levels}


def test_the_summary_holds_the_headline_numbers_under_two_names(published: Built) -> None:
    found = published.run_file(NAIVE).summary
    # Of each round one event of the device is missing: every iteration has its share of the region.
    regions = [arrays_of(NAIVE, number)["wall_ns"].sum() / 1e6 for number in range(3)]
    walls = np.repeat(regions, TIMED) / TIMED
    wanted = {
        "median_ms": np.median(walls),
        "p10_ms": np.quantile(walls, 0.1),
        "p90_ms": np.quantile(walls, 0.9),
        "n_iters": 3 * TIMED,
        "warmup_s": 1.5,
        "items_per_s": 3 * 70 / 0.030,
        "peak_mem_mb": 2_000_000 / MB,
        "mfu": 0.1,
        "rounds": 3,
    }
    for name, value in wanted.items():  # to the order of operations
        assert found[f"bench/{name}"] == found[f"bench_{name}"] == pytest.approx(value, rel=1e-12)
    assert found["outcome"] == "ok"
    bench = {name for name in found if name.startswith(("bench", "counters"))}
    assert bench == {f"bench{mark}{name}" for mark in "/_" for name in wanted}


def arrays(count: int, **own: int) -> dict[str, np.ndarray]:
    names = {"start_ns": count, "wall_ns": count, "epoch_ns": 1, "warmup_wall_ns": 9, **own}
    return {name: np.zeros(size) for name, size in names.items()}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        *(
            (arrays(3, **{name: 2}), f"here has 2 entries of {name} for 3 iterations")
            for name in ("device_ns", "start_ns", "host_forward", "device_forward")
        ),
        (arrays(3, log_loss=1, log_rate=2), "here has logged metrics of different lengths"),
        ({"start_ns": np.zeros(1)}, "here lacks epoch_ns, wall_ns"),
    ],
)
def test_series_of_other_iterations_than_their_own_are_refused(found: dict, says: str) -> None:
    check_arrays(arrays(3, host_forward=3, device_ns=3, log_loss=5, log_rate=5), "here")
    with pytest.raises(RecordError, match=f"^{says}; measure the trial again$"):
        check_arrays(found, "here")


def timing(outcome: Outcome = Outcome.OK, **own: Any) -> Timing:
    given = {"arm": NAIVE.id, "kind": Kind.TIMING, "pack": "p000", "round": 0, "attempt": 0, "code": ""}
    return Timing(TrialRecord(**given, method="m", outcome=outcome, **own), {})


def content(sweep: Built, *timings: Timing, arm: Arm = NAIVE) -> RunContent:
    return run_content(sweep.manifest, arm, PACK, timings)


def test_a_run_ended_well_if_a_round_did_and_is_called_after_most_of_the_others(sweep: Built) -> None:
    oom, failed = timing(Outcome.OOM), timing(Outcome.FAILED)
    made = content(sweep, failed, oom, oom)
    assert (made.exit_code, made.summary["outcome"]) == (1, "oom")
    assert made.tags[-2:] == ("failed", "oom") and made.run_id == f"{NAIVE.id}-p000"
    assert content(sweep, failed, timing()).exit_code == 0
    assert content(sweep).exit_code == 1


def test_names_are_as_long_as_the_server_takes_them(sweep: Built) -> None:
    long = dataclasses.replace(NAIVE, label="x" * 200)
    renamed = sweep.manifest.sweep.model_copy(update={"name": "n" * 200, "references": {"late": FAST.id}})
    manifest = sweep.manifest.model_copy(update={"sweep": renamed, "arms": (long, FAST)})
    made = run_content(manifest, long, PACK, [])
    assert (len(made.name), len(made.group), max(map(len, made.tags))) == (128, 128, 64)
    assert made.label == long.label and made.config["variant"] == long.label


SECOND = Pack(id="p001", orders=((NAIVE.id, FAST.id),), start="fork")


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path / "sweep", packs=(PACK, SECOND))


def runs(built: Built) -> SweepRuns:
    return SweepRuns(built.folder, built.manifest)


BOTH = [("p000", NAIVE.id), ("p000", FAST.id)]


def profiled(built: Built, tool: str = "cpu", **changes: object) -> Path:
    own = {
        "tool": tool,
        "workload": "toys.spinner:Spinner",
        "unit": "step",
        "arm": FAST,
        "slice": "region",
        "iterations": 3,
        "units": 3.0,
        "bare_ns": (100.0, 100.0),
    }
    folder = arm_folder(built.folder, FAST) / tool
    folder.mkdir(parents=True)
    write_profile(folder, Profile(**own | changes))  # type: ignore[arg-type]
    return folder


def compared(built: Built) -> None:
    built.folder.tables_dir.mkdir(parents=True, exist_ok=True)
    (built.folder.tables_dir / "effects.parquet").touch()


def test_the_comparison_and_profiles_come_last_and_only_where_the_whole_sweep_is_asked_for(
    built: Built,
) -> None:
    compared(built)
    profiled(built)
    assert runs(built).keys() == [*BOTH, (PROFILE, FAST.id), (COMPARE, "")]
    assert runs(built).keys(["p000", "p000"]) == BOTH
    assert runs(built).keys(["p001"]) == []


def test_a_pack_of_another_sweep_is_refused_with_the_choices(built: Built) -> None:
    with pytest.raises(ConfigError, match="pack p009 is not of sweep demo; choose from: p000, p001"):
        runs(built).keys(["p000", "p009", "p010"])


def test_the_comparison_holds_the_series_of_the_rounds_that_ended_well(built: Built) -> None:
    (built.folder.trial_dir(built.spec(NAIVE, 1)) / "iterations.npz").unlink()
    from perfsweep.pipelines.api import Sweep

    assert Sweep(built.folder, built.manifest).comparison
    content = runs(built).content((COMPARE, ""))
    assert content and [name for name, _ in content.bundled] == [
        *(f"{NAIVE.id}/p000-round{number:03d}.npz" for number in (0, 2)),
        *(f"{FAST.id}/p000-round{number:03d}.npz" for number in (0, 1)),
    ]


@pytest.mark.parametrize("damage", ["", "5eed00\n5eed00\n5eed"])
def test_what_tells_a_sweep_from_its_namesakes_is_drawn_once_and_outlives_damage(
    tmp_path: Path, damage: str
) -> None:
    folder = SweepFolder(tmp_path)
    file, first = folder.wandb_dir / "sweep.id", identity(folder)
    assert re.fullmatch(r"[0-9a-f]{6}", first) and identity(folder) == first
    file.write_text(damage)
    assert identity(folder) == file.read_text() != damage, "nothing was published: another one is drawn"
    (folder.wandb_dir / ".locks").mkdir(parents=True)
    (folder.wandb_dir / ".locks" / "5eed00-0123456789abcdef-p000").touch()
    file.write_text(damage)
    assert identity(folder) == file.read_text() == "5eed00", "that of what was published"


def test_the_run_of_an_arms_profiles_has_their_facts_their_tables_and_their_pages(built: Built) -> None:
    costs = tuple(Cost(name=f"op{n}", self_ns=75.0, calls=float(n)) for n in range(201))
    folder = profiled(built, "torch", profiled_ns=(150.0,), costs=costs, findings=("slow",))
    (folder / "tree.html").write_text("<html>tree</html>")
    profiled(built, "dynamo", facts={"graphs": 2.0, "breaks": None}, bare_ns=())
    run = profile_content(built.folder, built.manifest, IDENTITY, FAST.id)
    shown = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    cost = "1.50x: 150 ns per iteration with torch, 100 ns without it (1 pair)"
    (segment,), files, config = (shown.pop(name) for name in ("segments", "files", "config"))
    assert shown == {
        "run_id": f"5eed00-{FAST.id}-profile",
        "arm": FAST.id,
        "label": "profile of late",
        "pack": "",
        "name": "profile of late",
        "project": built.manifest.sweep.tracking.project,
        "entity": built.manifest.sweep.tracking.entity,
        "group": "demo",
        "job_type": "profile",
        "tags": ("Spinner", "demo"),
        "summary": {
            "profile/dynamo/graphs": 2.0,
            "profile/dynamo/says": "its cost is not known: no repetition had both sides",
            "profile/torch/overhead": 1.5,
            "profile/torch/says": f"slow | {cost}",
        },
        "exit_code": 0,
        "bundled": (),
    }
    assert (config["arm"], config["variant"], config["code"]) == (FAST.id, "late", "c0de")
    assert {name for name, _ in files} == {"dynamo/profile.json", "torch/profile.json", "torch/tree.html"}
    assert (segment.count, segment.numbers) == (1, False)
    (row,) = segment.rows()
    assert (sorted(row), len(row["torch"].data)) == (["torch", "torch-page"], 200)
    assert row["torch-page"].html == (folder / "tree.html").read_text(), "as it is, without W&B's style"
    assert row["torch"].columns == ["name", "where", "self_ns", "device_ns", "calls", "flops", "bytes"]
    assert row["torch"].data[7] == ["op7", "", 75.0, 0.0, 7.0, None, None]


def test_another_file_of_a_profile_is_another_run(built: Built) -> None:
    folder = profiled(built)
    digests = []
    for text in ("one", "one", "two"):
        (folder / "trace.json").write_text(text)
        digests.append(profile_content(built.folder, built.manifest, IDENTITY, FAST.id).digest())
    assert digests[0] == digests[1] != digests[2]
