"""Records in, offline W&B runs out: exact, repeatable, silent, offline, and never in the way of a sweep."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.files import write_arrays
from pipelines.publish import BufferedLog, LiveLog, Published, main, publish
from pipelines.records import (
    Arm,
    Failure,
    Kind,
    Manifest,
    Measure,
    Outcome,
    Pack,
    Sweep,
    SweepFolder,
    TrialRecord,
    TrialSpec,
    write_record,
    write_spec,
)
from pipelines.wandb_files import RunFile, read_run
from pipelines.wandb_session import SETTINGS, own_environment
from pipelines.wandb_session import settings as wandb_settings
from workloads.errors import ConfigError, RecordError

NAIVE = Arm(id="a" * 16, label="baseline", levels={"amp": "off", "slab_size": 1})
FAST = Arm(id="b" * 16, label="amp=bf16,slab_size=all", levels={"amp": "bf16", "slab_size": "all"})
PACK = Pack(id="p000", orders=((NAIVE.id, FAST.id), (FAST.id, NAIVE.id), (NAIVE.id, FAST.id)), start="fork")
MEASURE = Measure(
    rounds=3,
    iterations=7,
    jobs=1,
    warmup_max=9,
    evidence_iterations=1,
    counting_iterations=1,
    threads=1,
    timeout_s=9.0,
    seed=5,
)
EPOCH_NS = 1_700_000_000_123_456_789
TIMED, WARM = 7, 3
"""Iterations of each trial of the sweep below."""


@dataclass(frozen=True)
class Built:
    """A sweep on disk."""

    folder: SweepFolder
    manifest: Manifest

    def spec(self, arm: Arm, number: int | None, kind: Kind = Kind.TIMING, attempt: int = 0, pack: str = "p000") -> TrialSpec:
        sweep = self.manifest.sweep
        return TrialSpec(
            sweep=sweep.name,
            workload=sweep.workload,
            config={},
            arm=arm,
            kind=kind,
            pack=pack,
            round=number,
            attempt=attempt,
            measure=MEASURE,
            code="c0de",
            cache_dir="",
        )

    def add(self, spec: TrialSpec, arrays: dict[str, np.ndarray] | None, **fields: Any) -> Path:
        path = self.folder.trial_dir(spec)
        write_spec(path, spec)
        own = {"arm": spec.arm.id, "kind": spec.kind, "pack": spec.pack, "round": spec.round, "attempt": spec.attempt}
        write_record(path, TrialRecord(**{**own, "outcome": Outcome.OK, "code": "c0de", "method": MEASURE.method, **fields}))
        if arrays is not None:
            write_arrays(path / "iterations.npz", arrays)
        return path

    def add_round(self, arm: Arm, number: int, **changes: Any) -> Path:
        fields = {"units": 70.0, "region_ns": 5_000_000 * (number + 1), "warmup_s": 0.5 + number, "peak_bytes": 2_000_000}
        facts = {"torch": "2.13.0", "driver": "570", "host": "n1", "cpu_features": ["avx2", "amx"], "slurm": {"job_id": "7"}}
        facts["gpus"] = [{"name": "H200", "uuid": "GPU-1"}]
        return self.add(self.spec(arm, number), arrays_of(arm, number), environment=facts, **{**fields, **changes})

    def run_file(self, arm: Arm, pack: str = "p000") -> RunFile:
        (path,) = self.folder.wandb_dir.glob(f"offline-run-*-{arm.id}-{pack}")
        return read_run(path)


def arrays_of(arm: Arm, number: int) -> dict[str, np.ndarray]:
    """Arrays as a trial writes them, different for each arm and round."""
    rng = np.random.default_rng([ord(arm.id[0]), number])
    walls = rng.integers(400_000, 900_000, TIMED)
    loss = rng.normal(size=TIMED)
    loss[2] = np.nan  # nothing was logged in this iteration
    return {
        "start_ns": 10**12 + np.concatenate([[0], np.cumsum(walls[:-1] + 1_000)]),
        "wall_ns": walls,
        "device_ns": np.where(np.arange(TIMED) == 4, -1, walls - 100_000),  # one event could not be had
        "flags": np.zeros(TIMED, np.uint32),
        "host_forward": walls // 3,
        "device_forward": walls // 4,
        "warmup_wall_ns": rng.integers(10**6, 10**9, WARM),
        "epoch_ns": np.array([EPOCH_NS + number * 10**10]),
        "log_loss": loss,
        "log_lr@0": np.full(TIMED, 0.1),
    }


def build(path: Path, mode: str = "offline", packs: tuple[Pack, ...] = (PACK,)) -> Built:
    """A sweep of two arms and three rounds; the last round of the fast arm ran out of memory."""
    sweep = Sweep(
        name="demo",
        workload="toys.spinner:Spinner",
        config={"width": 8, "sizes": [1, 2]},
        measure=MEASURE,
        code="c0de",
        references={"naive": NAIVE.id, "late": FAST.id},
        tracking={"mode": mode, "project": "speed", "entity": "team", "margin": 0.01},
    )
    built = Built(SweepFolder(path), Manifest(sweep=sweep, arms=(NAIVE, FAST), effects=(), packs=packs))
    built.folder.write_manifest(built.manifest)
    for number in range(3):
        built.add_round(NAIVE, number)
    built.add_round(FAST, 0)
    built.add_round(FAST, 1, disturbed=("other load",))
    built.add(built.spec(FAST, 2), None, outcome=Outcome.OOM, failure=Failure(type="OutOfMemoryError", message="x"))
    built.add(built.spec(FAST, None, Kind.COUNTING), None, counters={"gemm_calls": 12.0, "cache_hits": None})
    return built


@pytest.fixture
def sweep(tmp_path: Path) -> Built:
    """A sweep that nobody has published."""
    return build(tmp_path / "demo")


@pytest.fixture(scope="module")
def _published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Published]:
    built = build(tmp_path_factory.mktemp("published") / "demo")
    return built, publish(built.folder)


@pytest.fixture(scope="module")
def published(_published: tuple[Built, Published]) -> Built:
    """A published sweep, to look at."""
    return _published[0]


@pytest.fixture(scope="module")
def result(_published: tuple[Built, Published]) -> Published:
    """What publishing it said."""
    return _published[1]


@pytest.fixture
def copied(published: Built, tmp_path: Path) -> Built:
    """A published sweep, to change."""
    path = tmp_path / "copied"
    shutil.copytree(published.folder.path, path)
    return Built(SweepFolder(path), published.manifest)


def timed_rows(run: RunFile) -> list[dict[str, Any]]:
    return [row for row in run.history if "iter/index" in row]


def snapshot(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


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


def test_charts_get_an_axis_that_is_unique_in_the_run(published: Built) -> None:
    run = published.run_file(NAIVE)
    assert run.step_metrics["iter/*"] == "iter/index"
    assert run.step_metrics["warmup/*"] == "warmup/index"
    for axis, count in (("iter/index", 3 * TIMED), ("warmup/index", 3 * WARM)):
        assert [row[axis] for row in run.history if axis in row] == list(range(count))


def test_warm_up_stands_apart_and_ends_where_the_region_starts(published: Built) -> None:
    rows = [row for row in published.run_file(NAIVE).history if row.get("warmup/round") == 1]
    walls = arrays_of(NAIVE, 1)["warmup_wall_ns"]
    assert [row["warmup/ms"] for row in rows] == [wall / 1e6 for wall in walls]
    assert not any(name.startswith("iter/") for row in rows for name in row)
    region_s = (EPOCH_NS + 10**10) / 1e9
    assert rows[-1]["_timestamp"] == region_s
    assert rows[-2]["_timestamp"] == pytest.approx(region_s - walls[-1] / 1e9, abs=1e-6)  # a double of now resolves 0.24 us


def test_the_configuration_names_every_level_also_baselines(published: Built) -> None:
    config = published.run_file(NAIVE).config
    assert (config["toggles.amp"], config["toggles.slab_size"]) == ("off", "1")  # text, because another arm has `all`
    assert (config["variant"], config["baseline"], config["seed"], config["sweep_id"]) == ("baseline", True, 5, "demo")
    assert (config["workload"], config["workload_config.width"], config["workload_config.sizes"]) == (
        "toys.spinner:Spinner",
        8,
        "[1, 2]",
    )
    assert config["environment.cpu_features"] == '["avx2", "amx"]'
    assert config["schema_version"] == 1
    assert published.run_file(FAST).config["baseline"] is False


def test_the_configuration_names_the_machine_and_versions_of_the_measurement(published: Built) -> None:
    config = published.run_file(NAIVE).config
    assert (config["hw.gpu"], config["hw.count"], config["hw.driver"]) == ("H200", 1, "570")
    assert (config["sw.torch"], config["sw.cuda"], config["slurm.job_id"], config["environment.host"]) == (
        "2.13.0",
        None,
        "7",
        "n1",
    )


def test_a_run_is_found_by_group_project_name_and_tags(published: Built) -> None:
    run = published.run_file(FAST)
    assert (run.run_id, run.project, run.entity, run.group) == (f"{FAST.id}-p000", "speed", "team", "demo")
    assert (run.job_type, run.name) == ("bench", "Spinner-amp=bf16,slab_size=all-5")
    assert run.tags == ("Spinner", "demo", "oom", "disturbed")
    assert published.run_file(NAIVE).tags == ("Spinner", "demo", "baseline")


def test_the_summary_holds_the_headline_numbers_under_two_names(published: Built) -> None:
    found = published.run_file(NAIVE).summary
    walls = np.concatenate([arrays_of(NAIVE, number)["wall_ns"] for number in range(3)]) / 1e6
    wanted = {
        "median_ms": np.median(walls),
        "p10_ms": np.quantile(walls, 0.1),
        "p90_ms": np.quantile(walls, 0.9),
        "n_iters": 3 * TIMED,
        "warmup_s": 1.5,
        "items_per_s": 3 * 70 / 0.030,
        "peak_mem_mb": 2.0,
        "rounds": 3,
    }
    for name, value in wanted.items():
        assert found[f"bench/{name}"] == found[f"bench_{name}"] == pytest.approx(value, rel=1e-12)  # order of operations
    assert found["outcome"] == "ok"


def test_a_trial_that_failed_leaves_its_mark_and_no_rows(published: Built) -> None:
    run = published.run_file(FAST)
    assert {row["iter/round"] for row in timed_rows(run)} == {0, 1}
    assert (run.summary["outcome"], run.summary["bench/rounds"]) == ("oom", 2)
    assert (run.exit_code, run.complete) == (0, True)


def test_counters_of_the_counting_trial_are_in_the_summary(published: Built) -> None:
    summary = published.run_file(FAST).summary
    assert summary["counters/gemm_calls"] == 12
    assert "counters/cache_hits" not in summary  # what could not be counted is no zero


def test_the_result_counts_rows_produced_and_rows_found_in_the_file(result: Published) -> None:
    assert [(run.arm, run.pack, run.rows_produced, run.rows_in_file, run.note) for run in result.runs] == [
        (NAIVE.id, "p000", 3 * (TIMED + WARM), 3 * (TIMED + WARM), "written"),
        (FAST.id, "p000", 2 * (TIMED + WARM), 2 * (TIMED + WARM), "written"),
    ]
    assert result.complete
    assert result.warning is None


def test_publishing_again_writes_nothing_and_starts_no_wandb(copied: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setattr(wandb, "init", lambda **_: pytest.fail("nothing is new"))
    before = snapshot(copied.folder.path)
    again = publish(copied.folder)
    assert [run.note for run in again.runs] == ["already complete"] * 2
    assert again.complete
    assert snapshot(copied.folder.path) == before


def test_the_manifest_and_records_are_not_touched(published: Built, sweep: Built) -> None:
    files = [path.relative_to(sweep.folder.path) for path in sweep.folder.path.rglob("*") if path.is_file()]
    assert len(files) > 10
    for file in files:
        assert (published.folder.path / file).read_bytes() == (sweep.folder.path / file).read_bytes()
    assert {path.name for path in published.folder.path.iterdir()} - {path.name for path in sweep.folder.path.iterdir()} == {
        "wandb"
    }


def test_nothing_but_runs_and_markers_is_left_behind(published: Built) -> None:
    names = sorted(path.name.split("-")[0] for path in published.folder.wandb_dir.iterdir())
    assert names == [NAIVE.id, FAST.id, "offline", "offline"]
    assert not [path for path in published.folder.wandb_dir.rglob("*") if path.is_symlink()]


def test_a_changed_record_replaces_the_run_it_belongs_to_and_no_other(copied: Built) -> None:
    before = snapshot(copied.folder.wandb_dir)
    path = copied.folder.trial_dir(copied.spec(FAST, 1))
    arrays = {**arrays_of(FAST, 1), "wall_ns": np.full(TIMED, 123_000)}
    write_arrays(path / "iterations.npz", arrays)
    assert [run.note for run in publish(copied.folder).runs] == ["already complete", "written again"]
    rows = [row["iter/ms"] for row in timed_rows(copied.run_file(FAST)) if row["iter/round"] == 1]
    assert rows == [0.123] * TIMED
    after = snapshot(copied.folder.wandb_dir)
    assert {name: time for name, time in after.items() if NAIVE.id in name} == {
        name: time for name, time in before.items() if NAIVE.id in name
    }


def _delete(path: Path) -> None:
    shutil.rmtree(path)


def _cut(path: Path) -> None:
    file = next(path.glob("*.wandb"))
    file.write_bytes(file.read_bytes()[:-100])


def _double(path: Path) -> None:
    shutil.copytree(path, path.with_name(path.name.replace("offline-run-2", "offline-run-3")))


def _tear_marker(path: Path) -> None:
    marker = path.with_name(f"{FAST.id}-p000.json")
    marker.write_bytes(marker.read_bytes()[:40])


@pytest.mark.parametrize("harm", [_delete, _cut, _double, _tear_marker])
def test_a_damaged_copy_is_written_again_and_never_twice(copied: Built, harm: Callable[[Path], None]) -> None:
    harm(next(copied.folder.wandb_dir.glob(f"offline-run-*-{FAST.id}-p000")))
    again = publish(copied.folder)
    assert again.complete
    assert again.runs[0].note == "already complete"
    assert again.runs[1].note.startswith("written")
    assert len(timed_rows(copied.run_file(FAST))) == 2 * TIMED


def test_a_run_that_was_uploaded_before_says_so(copied: Built) -> None:
    old = next(copied.folder.wandb_dir.glob(f"offline-run-*-{FAST.id}-p000"))
    (old / f"run-{FAST.id}-p000.wandb.synced").touch()
    write_arrays(copied.folder.trial_dir(copied.spec(FAST, 1)) / "iterations.npz", arrays_of(FAST, 7))
    assert publish(copied.folder).runs[1].note == "written again; delete the uploaded run before the next sync"


def test_metrics_that_were_not_logged_once_per_iteration_have_their_own_axis(sweep: Built) -> None:
    arrays = {**arrays_of(NAIVE, 0), "log_loss": np.array([2.0, 1.0]), "log_lr@0": np.array([np.nan, 0.5])}
    write_arrays(sweep.folder.trial_dir(sweep.spec(NAIVE, 0)) / "iterations.npz", arrays)
    assert publish(sweep.folder).complete
    run = sweep.run_file(NAIVE)
    rows = [{name: value for name, value in row.items() if name.startswith("log/")} for row in run.history if "log/index" in row]
    first = {"log/index": 0, "log/round": 0, "log/in_round": 0, "log/loss": 2.0}
    assert rows == [first, {"log/index": 1, "log/round": 0, "log/in_round": 1, "log/loss": 1.0, "log/lr_0": 0.5}]
    assert run.step_metrics["log/*"] == "log/index"
    assert not any("iter/loss" in row for row in run.history if row.get("iter/round") == 0)


def test_only_rounds_that_every_arm_finished_are_published(sweep: Built) -> None:
    shutil.rmtree(sweep.folder.trial_dir(sweep.spec(FAST, 1)))
    publish(sweep.folder)
    assert {row["iter/round"] for row in timed_rows(sweep.run_file(NAIVE))} == {0, 2}


def test_a_logged_key_cannot_hide_a_time(sweep: Built) -> None:
    write_arrays(
        sweep.folder.trial_dir(sweep.spec(NAIVE, 0)) / "iterations.npz", {**arrays_of(NAIVE, 0), "log_ms": np.full(TIMED, -1.0)}
    )
    publish(sweep.folder)
    row = timed_rows(sweep.run_file(NAIVE))[0]
    assert (row["iter/ms"], row["iter/log_ms"]) == (arrays_of(NAIVE, 0)["wall_ns"][0] / 1e6, -1.0)


def test_packs_are_published_one_by_one_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    other = Pack(id="p001", orders=((NAIVE.id,),), start="fork")
    built = build(tmp_path / "demo", packs=(PACK, other))
    built.add(built.spec(NAIVE, 0, pack="p001"), arrays_of(NAIVE, 0))
    assert [(run.arm, run.pack) for run in publish(built.folder, ["p001"]).runs] == [(NAIVE.id, "p001")]
    assert len(list(built.folder.wandb_dir.glob("offline-run-*"))) == 1
    with pytest.raises(ConfigError, match="pack p9 is not of sweep demo; choose from: p000, p001"):
        publish(built.folder, ["p9"])


def test_disabled_tracking_writes_nothing(tmp_path: Path) -> None:
    built = build(tmp_path / "demo", mode="disabled")
    before = snapshot(built.folder.path)
    assert publish(built.folder) == Published()
    assert snapshot(built.folder.path) == before


def test_a_mode_that_does_not_exist_is_a_warning(tmp_path: Path) -> None:
    done = publish(build(tmp_path / "demo", mode="online").folder)
    assert done.warning == "tracking.mode=online is unknown, nothing was published; choose from: offline, disabled"
    assert not done.complete


def test_a_folder_that_cannot_be_written_is_one_warning(sweep: Built) -> None:
    sweep.folder.wandb_dir.write_text("in the way")
    done = publish(sweep.folder)
    assert done.warning is not None
    assert done.warning.startswith("2 of 2 runs lack 50 rows")
    assert "\n" not in done.warning
    assert [(run.path, run.rows_in_file, run.note) for run in done.runs] == [(None, 0, "not published")] * 2


@pytest.mark.parametrize("error", [RuntimeError("core is gone\nmore"), ConnectionResetError(), asyncio.CancelledError("task")])
def test_a_failure_in_the_second_run_keeps_the_first_and_is_mended_later(
    sweep: Built, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    import wandb

    def fail_second(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(**given: Any) -> Any:
            if given["settings"].run_id.startswith(FAST.id):
                raise error
            return original(**given)

        return init

    with monkeypatch.context() as patch:
        patch.setattr(wandb, "init", fail_second(wandb.init))
        done = publish(sweep.folder)
    assert [run.note for run in done.runs] == ["written", "not published"]
    assert done.warning is not None
    assert type(error).__name__ in done.warning
    assert "\n" not in done.warning
    mended = publish(sweep.folder)
    assert [run.note for run in mended.runs] == ["already complete", "written"]
    assert mended.complete


def test_rows_that_w_and_b_loses_are_counted_and_published_again(sweep: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.sdk.wandb_run import Run

    log = Run.log
    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", lambda self, row: None if row.get("iter/index") == 3 else log(self, row))
        done = publish(sweep.folder)
    assert [run.rows_produced - run.rows_in_file for run in done.runs] == [1, 1]
    assert not done.complete
    assert done.warning is not None
    assert done.warning.startswith("2 of 2 runs lack 2 rows")
    assert publish(sweep.folder).complete


def test_an_interrupt_passes_and_leaves_nothing_half_done(sweep: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    from wandb.sdk.wandb_run import Run

    def interrupt(self: Run, row: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "log", interrupt)
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(KeyboardInterrupt):
        publish(sweep.folder)
    assert list(sweep.folder.wandb_dir.iterdir()) == []
    assert {name for name in os.environ if name.startswith("WANDB_")} == {"WANDB_MODE"}


def test_a_damaged_file_is_named_and_the_rest_is_published(sweep: Built) -> None:
    file = sweep.folder.trial_dir(sweep.spec(NAIVE, 1)) / "iterations.npz"
    file.write_bytes(file.read_bytes()[:200])
    other = sweep.folder.trial_dir(sweep.spec(FAST, 1)) / "iterations.npz"
    write_arrays(other, {**arrays_of(FAST, 1), "device_ns": np.zeros(2, np.int64)})
    done = publish(sweep.folder)
    assert done.warning is not None
    assert str(file) in done.warning
    assert "(and 1 more)" in done.warning
    assert {row["iter/round"] for row in timed_rows(sweep.run_file(NAIVE))} == {0, 2}
    assert {row["iter/round"] for row in timed_rows(sweep.run_file(FAST))} == {0}


def test_arrays_without_start_times_are_refused_by_name(sweep: Built) -> None:
    file = sweep.folder.trial_dir(sweep.spec(NAIVE, 1)) / "iterations.npz"
    write_arrays(file, {"wall_ns": np.ones(3, np.int64)})
    done = publish(sweep.folder)
    assert done.warning is not None
    assert f"{file.parent} lacks epoch_ns, start_ns" in done.warning


def test_arrays_of_words_leave_out_their_run_and_no_other(sweep: Built) -> None:
    file = sweep.folder.trial_dir(sweep.spec(NAIVE, 1)) / "iterations.npz"
    write_arrays(file, {**arrays_of(NAIVE, 1), "wall_ns": np.array(["a"] * TIMED)})
    done = publish(sweep.folder)
    assert done.warning is not None
    assert [run.arm for run in done.runs] == [FAST.id]


def test_a_damaged_record_is_named(sweep: Built) -> None:
    record = sweep.folder.trial_dir(sweep.spec(FAST, None, Kind.COUNTING)) / "record.json"
    record.write_text("{")
    done = publish(sweep.folder)
    assert done.warning is not None
    assert done.warning.startswith("some records could not be read")
    assert str(record) in done.warning
    assert "counters/gemm_calls" not in sweep.run_file(FAST).summary


def test_a_folder_without_a_manifest_is_the_users_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RecordError):
        publish(SweepFolder(tmp_path))
    assert main([str(tmp_path)]) == 2
    assert "manifest.jsonl" in capsys.readouterr().err


@pytest.fixture
def connections() -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a proxy, and what anybody said to it."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            heard.append(connection.recv(64))
            connection.close()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(timeout=5)


def test_as_a_process_it_prints_one_line_whatever_the_shell_says_about_wandb(
    sweep: Built, tmp_path: Path, connections: tuple[str, list[bytes]]
) -> None:
    proxy, heard = connections
    home = tmp_path / "home"
    home.mkdir()
    shell = {
        "WANDB_MODE": "online",
        "WANDB_API_KEY": "0" * 40,
        "WANDB_RUN_ID": "stolen",
        "WANDB_RESUME": "must",
        "WANDB_PROJECT": "elsewhere",
        "WANDB_TAGS": "x,y",
        "WANDB_DIR": str(home),
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "WANDB_SILENT": "false",
        "WANDB_CONSOLE": "wrap",
    }
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), proxy)
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.publish", str(sweep.folder.path)],
        env={**os.environ, **shell, **proxies, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    wanted = f"W&B: 2 offline runs, 2 of them new, 50 of 50 rows in {sweep.folder.wandb_dir}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")
    assert heard == []
    assert list(home.rglob("*")) == []
    run = sweep.run_file(NAIVE)
    assert (run.run_id, run.project, run.tags) == (f"{NAIVE.id}-p000", "speed", ("Spinner", "demo", "baseline"))
    secret = b"0" * 40
    assert not [path for path in sweep.folder.path.rglob("*") if path.is_file() and secret in path.read_bytes()]


def test_importing_the_module_does_not_import_wandb() -> None:
    code = "import sys, pipelines.publish; sys.exit('wandb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_wandb_knows_every_setting_of_the_table(tmp_path: Path) -> None:
    with own_environment(tmp_path):
        made = wandb_settings(tmp_path)
        assert {name: getattr(made, name) for name in SETTINGS} == SETTINGS
        with pytest.raises(ValueError, match="x_unheard_of"):
            wandb_settings(tmp_path, x_unheard_of=1)


def test_a_run_that_the_caller_has_open_stays_open(sweep: Built, tmp_path: Path) -> None:
    with own_environment(tmp_path):
        import wandb

        mine = wandb.init(settings=wandb.Settings(mode="disabled", root_dir=str(tmp_path)))
        publish(sweep.folder)
        assert wandb.run is mine
        mine.finish()
        wandb.teardown()


def live_rows(level: str, folder: Path, count: int) -> tuple[list[dict[str, Any]], int]:
    log = LiveLog(level, folder)
    for index in range(count):
        log({"loss": torch.tensor(index / 8), "index": index})  # what a training loop hands over
    log.close()
    (path,) = folder.rglob("offline-run-*")
    return read_run(path).history, log.calls


def test_level_each_commits_every_row(tmp_path: Path) -> None:
    rows, calls = live_rows("each", tmp_path / "scratch", 60)
    assert [(row["index"], row["loss"]) for row in rows] == [(index, index / 8) for index in range(60)]
    assert calls == 60


def test_level_commit_false_keeps_the_last_of_fifty_rows(tmp_path: Path) -> None:
    rows, calls = live_rows("commit_false", tmp_path / "scratch", 120)
    assert [row["index"] for row in rows] == [49, 99, 119]  # 117 of 120 rows are lost; finishing saves the last
    assert calls == 120


def test_a_live_log_ignores_the_shell_and_keeps_to_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setenv("WANDB_RUN_ID", "stolen")
    monkeypatch.setenv("WANDB_RUN_GROUP", "stolen")  # no setting of ours would hide it
    rows, _ = live_rows("each", tmp_path / "scratch", 2)
    assert len(rows) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]
    (path,) = tmp_path.rglob("offline-run-*")
    assert read_run(path).group == ""
    assert os.environ["WANDB_RUN_ID"] == "stolen"


def test_what_a_trial_prints_stays_out_of_its_run(tmp_path: Path) -> None:
    log = LiveLog("each", tmp_path)
    print("a line of the workload")
    log({"loss": 1.0})
    log.close()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"a line of the workload" in path.read_bytes()]


def test_a_level_that_does_not_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wandb_logging=buffered does not log to W&B; choose from: each, commit_false"):
        LiveLog("buffered", tmp_path)


def test_a_buffered_log_gives_one_array_for_each_key_with_gaps_marked() -> None:
    log = BufferedLog()
    row = {"loss": torch.tensor(2.0, requires_grad=True), "lr": 0.1}
    log(row)
    row["lr"] = 9.0  # the caller may use its mapping again
    log({"loss": torch.tensor(1.5), "accuracy": 1})
    arrays = log.arrays()
    assert list(arrays) == ["loss", "lr", "accuracy"]
    assert all(values.dtype == np.float64 for values in arrays.values())
    np.testing.assert_array_equal(arrays["loss"], [2.0, 1.5])
    np.testing.assert_array_equal(arrays["lr"], [0.1, np.nan])
    np.testing.assert_array_equal(arrays["accuracy"], [np.nan, 1.0])
    assert log.calls == 0


def test_a_cleared_buffered_log_is_empty() -> None:
    log = BufferedLog()
    log({"loss": 1.0})
    log.clear()
    assert log.arrays() == {}


class _Saved:
    """Something that a graph keeps."""


class _Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, saved: _Saved) -> torch.Tensor:
        ctx.saved = saved
        return value.sum()


def test_a_buffered_log_keeps_no_graph_alive() -> None:
    saved = _Saved()
    kept = weakref.ref(saved)
    log = BufferedLog()
    log({"loss": _Keeping.apply(torch.ones(4, requires_grad=True), saved)})
    del saved
    gc.collect()
    assert kept() is None
    assert log.arrays()["loss"].tolist() == [4.0]
