"""Records -> W&B: the only code that talks to it.

Records are the truth and W&B is a copy, made from them outside measured processes: one offline run for each arm and
pack under ``runs/<sweep>/wandb``, ready for ``wandb sync``. Publishing again changes nothing unless records changed.
Whatever goes wrong in W&B is a warning: it never fails a sweep.

`BufferedLog` and `LiveLog` are where a trial's metrics go. Importing this module does not import wandb.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pipelines.files import write_atomically
from pipelines.progress import Found, Progress, read_progress
from pipelines.records import Kind, Manifest, Outcome, Pack, Row, SweepFolder, read_iterations
from pipelines.wandb_content import RunContent, Timing, check_arrays, run_content
from pipelines.wandb_files import read_run
from pipelines.wandb_session import guarded, own_environment, settings
from workloads.errors import ConfigError, PerfsweepError, RecordError

_COMMIT_EVERY = {"each": 1, "commit_false": 50}
_STEP_METRICS = ("iter", "warmup", "log")


@dataclass(frozen=True)
class PublishedRun:
    """One arm in one pack: where its run lies and how many history rows of it arrived there."""

    arm: str
    label: str
    pack: str
    run_id: str
    path: Path | None
    rows_produced: int
    rows_in_file: int
    note: str


@dataclass(frozen=True)
class Published:
    """What publishing did; `warning` is one sentence, and None when nothing is missing."""

    runs: tuple[PublishedRun, ...] = ()
    warning: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every row of every run has been found again in its file."""
        return self.warning is None and all(run.rows_in_file == run.rows_produced for run in self.runs)


class Marker(Row):
    """What was published as a run, so that publishing again can see whether anything changed."""

    run_id: str
    digest: str
    folder: str
    file_bytes: int
    rows_produced: int
    rows_in_file: int


def publish(folder: SweepFolder, packs: Sequence[str] | None = None) -> Published:
    """Copy the finished rounds of a sweep, or of some of its packs, to W&B.

    Raises
    ------
    RecordError
        There is no readable manifest.
    ConfigError
        A pack is not of this sweep.
    """
    manifest = folder.read_manifest()
    chosen = _chosen(manifest, packs)
    match manifest.sweep.tracking.get("mode", "offline"):
        case "disabled":
            return Published()
        case "offline":
            return _publish_offline(folder, manifest, chosen)
        case mode:
            return Published(warning=f"tracking.mode={mode} is unknown, nothing was published; choose from: offline, disabled")


class BufferedLog:
    """Keeps rows of metrics in memory until after the measurement.

    Values may be tensors of one element; they are read in `arrays`, because reading one waits for its device. A
    tensor that the workload overwrites later must be cloned by the workload.
    """

    calls = 0
    """Calls of W&B: none."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def __call__(self, row: Mapping[str, Any]) -> None:
        # An attached loss would keep its graph alive, and with it the memory that a trial measures.
        self._rows.append({key: _detached(value) for key, value in row.items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """One float64 array [rows] for each key, with NaN where a row lacks it."""
        keys = dict.fromkeys(key for row in self._rows for key in row)
        return {key: np.array([float(row.get(key, np.nan)) for row in self._rows]) for key in keys}

    def clear(self) -> None:
        """Forget all rows."""
        self._rows.clear()

    def close(self) -> None:
        """Nothing to close."""


class LiveLog:
    """Sends rows of metrics to W&B from inside the loop: what the toggle `wandb_logging` measures.

    Level `each` commits every row. Level `commit_false` commits every fiftieth, as a report advises; W&B merges
    uncommitted rows, so that of fifty rows with the same keys the last one stays.

    Parameters
    ----------
    scratch_dir : the offline run goes there

    Raises
    ------
    ConfigError
        The level is not one that logs.
    """

    def __init__(self, level: str, scratch_dir: Path) -> None:
        if level not in _COMMIT_EVERY:
            raise ConfigError(f"toggles.wandb_logging={level} does not log to W&B; choose from: {', '.join(_COMMIT_EVERY)}")
        self.calls = 0
        self._commit_every = _COMMIT_EVERY[level]
        scratch_dir.mkdir(parents=True, exist_ok=True)
        with own_environment(scratch_dir):
            import wandb

            self._run = wandb.init(settings=settings(scratch_dir, run_id="live", project="perfsweep"))

    def __call__(self, row: Mapping[str, Any]) -> None:
        self.calls += 1
        self._run.log(dict(row), commit=self.calls % self._commit_every == 0)

    def arrays(self) -> dict[str, np.ndarray]:
        """Nothing: rows went to W&B."""
        return {}

    def clear(self) -> None:
        """Nothing: rows went to W&B."""

    def close(self) -> None:
        """Finish the run and end W&B's background process."""
        import wandb

        self._run.finish()
        wandb.teardown()


def _detached(value: Any) -> Any:
    return value.detach() if getattr(value, "requires_grad", False) else value


def _chosen(manifest: Manifest, packs: Sequence[str] | None) -> list[Pack]:
    known = {pack.id: pack for pack in manifest.packs}
    if unknown := [name for name in packs or () if name not in known]:
        raise ConfigError(f"pack {unknown[0]} is not of sweep {manifest.sweep.name}; choose from: {', '.join(known)}")
    return list(known.values()) if packs is None else [known[name] for name in dict.fromkeys(packs)]


def _publish_offline(folder: SweepFolder, manifest: Manifest, chosen: Sequence[Pack]) -> Published:
    problems: list[str] = []
    contents = _contents(folder, manifest, chosen, problems)
    before = {content.run_id: _published_before(folder, content) for content in contents}
    todo = [content for content in contents if before[content.run_id] is None]
    written = _write_runs(folder, todo, problems) if todo else {}
    runs = [before[content.run_id] or written.get(content.run_id) or _missing(content) for content in contents]
    return Published(tuple(runs), _warning(runs, problems))


def _contents(folder: SweepFolder, manifest: Manifest, packs: Sequence[Pack], problems: list[str]) -> list[RunContent]:
    """The runs of all arms that have finished rounds; files that cannot be read are named in `problems`."""
    progress = read_progress(folder, manifest)
    problems += progress.damaged
    contents = []
    for pack in packs:
        for arm_id in pack.arms:
            if timings := [_timing(found, problems) for found in _final(progress, pack, arm_id)]:
                counting = progress.other.get((arm_id, Kind.COUNTING))
                arm = manifest.arm(arm_id)
                with guarded(problems):  # arrays can be readable and still not be what a trial writes
                    contents.append(run_content(manifest, arm, pack.id, timings, counting and counting.record))
    return contents


def _final(progress: Progress, pack: Pack, arm: str) -> list[Found]:
    """The arm's trials in the attempts that finished a round: the ones that comparisons use."""
    final = []
    for number in range(len(pack.orders)):
        attempt = progress.finished_attempt(pack.id, number, pack.arms)
        found = progress.timing[pack.id, number][attempt].get(arm) if attempt is not None else None
        if found:
            final.append(found)
    return final


def _timing(found: Found, problems: list[str]) -> Timing:
    if found.record.outcome is not Outcome.OK:
        return Timing(found.record, {})
    try:
        arrays = read_iterations(found.folder)
        check_arrays(arrays, str(found.folder))
    except RecordError as error:
        problems.append(str(error))
        return Timing(found.record, {})
    return Timing(found.record, arrays)


def _marker_file(folder: SweepFolder, run_id: str) -> Path:
    return folder.wandb_dir / f"{run_id}.json"


def _copies(folder: SweepFolder, run_id: str) -> list[Path]:
    return list(folder.wandb_dir.glob(f"offline-run-*-{run_id}"))


def _published_before(folder: SweepFolder, content: RunContent) -> PublishedRun | None:
    """The run as it was published before, if it still says and holds the same."""
    try:
        marker = Marker.model_validate_json(_marker_file(folder, content.run_id).read_bytes())
        path = folder.wandb_dir / marker.folder
        # Two folders of one id, which simultaneous publishers can leave, would be uploaded with every row twice.
        alone = len(_copies(folder, content.run_id)) == 1
        intact = alone and (path / f"run-{content.run_id}.wandb").stat().st_size == marker.file_bytes
    except (OSError, ValidationError):
        return None  # never published, or its traces are damaged or deleted: it is written again
    if not intact or marker.digest != content.digest() or marker.rows_in_file != marker.rows_produced:
        return None
    return _run(content, path, marker.rows_in_file, "already complete")


def _write_runs(folder: SweepFolder, contents: Sequence[RunContent], problems: list[str]) -> dict[str, PublishedRun]:
    """Write runs in a folder aside, and move those that were finished to their place.

    A publisher that is killed leaves no half run behind, and W&B's own links and logs, which runs share, stay aside.
    """
    written: dict[str, PublishedRun] = {}
    with guarded(problems):
        folder.wandb_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".publishing-", dir=folder.wandb_dir, ignore_cleanup_errors=True) as aside:
            staging = Path(aside)
            for content, path in _log_runs(staging, contents, problems):
                with guarded(problems):
                    written[content.run_id] = _put_in_place(folder, content, path)
    return written


def _log_runs(staging: Path, contents: Sequence[RunContent], problems: list[str]) -> list[tuple[RunContent, Path]]:
    """Write offline runs with W&B until it fails for the first time; the folders of those that were finished."""
    finished: list[tuple[RunContent, Path]] = []
    with own_environment(staging):
        try:
            with guarded(problems):
                for content in contents:
                    finished.append((content, _log_run(staging, content)))
        finally:
            # Files may lack their last rows until the background process has ended, which finishing a run does not do.
            with guarded(problems):
                import wandb

                wandb.teardown()
    return finished


def _log_run(staging: Path, content: RunContent) -> Path:
    import wandb

    own = settings(
        staging,
        project=content.project,
        entity=content.entity,
        run_id=content.run_id,
        run_name=content.name,
        run_group=content.group,
        run_job_type=content.job_type,
        run_tags=content.tags,
    )
    run = wandb.init(settings=own, config=content.config)
    path = Path(run.dir).parent
    if staging.resolve() not in path.resolve().parents:
        raise RecordError(f"W&B writes to {path} instead of {staging}; check that the sweep's folder can be written")
    # Never `step=`: W&B drops rows whose step goes backwards. Charts take their axis from these declarations.
    for kind in _STEP_METRICS:
        run.define_metric(f"{kind}/*", step_metric=f"{kind}/index")
    for row in content.rows:
        run.log(row)
    run.summary.update(content.summary)
    run.finish(exit_code=content.exit_code)
    return path


def _put_in_place(folder: SweepFolder, content: RunContent, path: Path) -> PublishedRun:
    """Replace earlier copies of a run by this one, and note what it holds.

    The earlier copy goes first: two folders of one id would be uploaded as one run with every row twice.
    """
    file = path / f"run-{content.run_id}.wandb"
    rows = len(read_run(file).history)
    marker_file = _marker_file(folder, content.run_id)
    earlier = _copies(folder, content.run_id)
    uploaded = any(list(old.glob("*.synced")) for old in earlier)
    marker_file.unlink(missing_ok=True)
    for old in earlier:
        shutil.rmtree(old)
    place = folder.wandb_dir / path.name
    path.replace(place)
    with suppress(OSError):  # a link to a log that lies aside; without it nothing is missing
        (place / "logs" / "debug-core.log").unlink()
    marker = Marker(
        run_id=content.run_id,
        digest=content.digest(),
        folder=place.name,
        file_bytes=(place / file.name).stat().st_size,
        rows_produced=len(content.rows),
        rows_in_file=rows,
    )
    write_atomically(marker_file, marker.model_dump_json(indent=1).encode())
    note = "written again" if earlier else "written"
    return _run(content, place, rows, f"{note}; delete the uploaded run before the next sync" if uploaded else note)


def _run(content: RunContent, path: Path | None, rows: int, note: str) -> PublishedRun:
    return PublishedRun(content.arm, content.label, content.pack, content.run_id, path, len(content.rows), rows, note)


def _missing(content: RunContent) -> PublishedRun:
    return _run(content, None, 0, "not published")


def _warning(runs: Sequence[PublishedRun], problems: Sequence[str]) -> str | None:
    short = [run for run in runs if run.path is None or run.rows_in_file != run.rows_produced]
    if not short and not problems:
        return None
    rows = sum(run.rows_produced - run.rows_in_file for run in short)
    what = f"{len(short)} of {len(runs)} runs lack {rows} rows" if short else "some records could not be read"
    reason = problems[0] if problems else "W&B gave no reason; is the disk full?"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{what}, the records are untouched, mend this and publish again: {reason}{more}"


def _line(done: Published, folder: SweepFolder) -> str:
    if not done.runs and not done.warning:
        return f"W&B: nothing to publish of {folder.path}"
    new = sum(run.note.startswith("written") for run in done.runs)
    found, produced = sum(run.rows_in_file for run in done.runs), sum(run.rows_produced for run in done.runs)
    line = f"W&B: {len(done.runs)} offline runs, {new} of them new, {found} of {produced} rows in {folder.wandb_dir}"
    return f"{line}; {done.warning}" if done.warning else line


def main(arguments: Sequence[str]) -> int:
    """Publish a sweep folder; status 0 when everything arrived, 1 when rows are missing, 2 for a wrong request."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.publish", description="Copy records of a sweep to W&B.")
    parser.add_argument("folder", type=Path, help="folder of the sweep")
    parser.add_argument("packs", nargs="*", metavar="pack", help="only these packs")
    given = parser.parse_args(arguments)
    folder = SweepFolder(given.folder)
    try:
        done = publish(folder, given.packs or None)
    except PerfsweepError as error:
        print(error, file=sys.stderr)
        return 2
    print(_line(done, folder))
    return 0 if done.complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
