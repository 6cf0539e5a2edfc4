"""Run folders on disk: one for each run under ``runs/<sweep>/wandb``, ready for ``wandb sync``.

`write_run` is the only code that opens runs of a sweep, offline and online alike. A run is written aside and
moved to its place when it is finished, so that a publisher that is killed leaves no half run. A marker next
to it tells later whether records have changed since.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from pydantic import ValidationError

from perfsweep.pipelines.config.tracking import settings, settings_of
from perfsweep.pipelines.publish.content import RunContent, Segment
from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.wandb_file import UnknownFraming, extent, insert_rows
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import StoredValue, SweepFolder
from perfsweep.workloads.errors import RecordError

SETTLE_S = 2.0
"""Time that W&B's background process may take to finish a file after the run is finished."""


class Marker(StoredValue):
    """What was published as a run, so that publishing again can see whether anything changed."""

    run_id: str
    digest: str
    folder: str
    file_bytes: int
    rows_produced: int
    rows_in_file: int


def published_before(folder: SweepFolder, content: RunContent) -> PublishedRun | None:
    """The run as it was published before, if it still says and holds the same."""
    try:
        marker = Marker.model_validate_json(_marker_file(folder, content.run_id).read_bytes())
        path = folder.wandb_dir / marker.folder
        # Two folders of one id, which a copy by hand can leave, would be uploaded with every row twice.
        alone = len(_copies(folder, content.run_id)) == 1
        intact = alone and (path / f"run-{content.run_id}.wandb").stat().st_size == marker.file_bytes
    except (OSError, ValidationError):
        return None  # never published, or its traces are damaged or deleted: it is written again
    if not intact or marker.digest != content.digest() or marker.rows_in_file != marker.rows_produced:
        return None
    return content.delivered(str(path), marker.rows_in_file, "already complete")


def write_offline(folder: SweepFolder, content: RunContent, staging: Path) -> PublishedRun:
    """Write a run and put it in its place, replacing earlier copies.

    Rows of numbers are written straight into the file; where this W&B frames its file otherwise than we do,
    its client writes them, slowly.
    """
    by_client = [segment for segment in content.segments if not segment.numbers]
    path, _, remark = write_run(staging, content, content.run_id, mode="offline", segments=by_client)
    file = path / f"run-{content.run_id}.wandb"
    place = folder.wandb_dir.absolute() / path.name
    try:
        _settle(file)
        rows = (row for segment in content.segments if segment.numbers for row in segment.rows())
        insert_rows(file, rows, partial(_taken_along, staging, path, place))
    except UnknownFraming as unknown:
        shutil.rmtree(path)
        path, _, _ = write_run(staging, content, content.run_id, mode="offline", segments=content.segments)
        remark = f"{unknown}; rows are written by W&B's own client, which takes longer"
        return _put_in_place(folder, content, path, content.rows, remark)
    return _put_in_place(folder, content, path, extent(file).rows, remark)


def _taken_along(aside: Path, path: Path, place: Path, local: str) -> str:
    """Take a file of an artifact that W&B's client keeps aside, which goes, into the run's folder.

    Returns where it will lie once the run is in its place.
    """
    file, own = Path(local), Path("artifacts") / Path(local).name
    if aside.resolve() not in file.resolve().parents:
        return local
    (path / own).parent.mkdir(exist_ok=True)
    shutil.copyfile(file, path / own)
    return str(place / own)


def mark_uploaded(folder: SweepFolder, run_id: str) -> None:
    """Keep `wandb sync` from uploading a run a second time, which would append every row again."""
    for path in _copies(folder, run_id):
        (path / f"run-{run_id}.wandb.synced").touch()


def _settle(file: Path) -> None:
    """Wait until the file is whole: a background process writes its last records after the run's finish."""
    deadline = time.monotonic() + SETTLE_S
    while not extent(file).complete:
        if time.monotonic() > deadline:
            import wandb

            wandb.teardown()
            if extent(file).complete:
                return
            raise RecordError(f"W&B's client did not write {file.name} to its end; is the disk full?")
        time.sleep(0.02)


def _put_in_place(
    folder: SweepFolder, content: RunContent, path: Path, rows: int, remark: str
) -> PublishedRun:
    """Replace earlier copies of a run by this one, and note what it holds.

    The earlier copy goes first: two folders of one id would be uploaded as one run with every row twice.
    """
    file = path / f"run-{content.run_id}.wandb"
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
        rows_produced=content.rows,
        rows_in_file=rows,
    )
    write_atomically(marker_file, marker.model_dump_json(indent=1).encode())
    note = "written again" if earlier else "written"
    note += "; upload it with `perfsweep publish`, not with `wandb sync`" if uploaded else ""
    return content.delivered(str(place), rows, note, remark=remark)


def _marker_file(folder: SweepFolder, run_id: str) -> Path:
    return folder.wandb_dir / f"{run_id}.json"


def _copies(folder: SweepFolder, run_id: str) -> list[Path]:
    return list(folder.wandb_dir.glob(f"offline-run-*-{run_id}"))


SERIES = "series.zip"
"""The archive with every iteration of a sweep."""

_STEP_METRICS = ("iter", "warmup", "log")


def write_run(
    staging: Path,
    content: RunContent,
    run_id: str,
    *,
    mode: str,
    segments: Sequence[Segment],
    resume: bool = False,
) -> tuple[Path, str | None, str]:
    """Open a run, say everything but rows of other segments than these, and finish it.

    Parameters
    ----------
    staging : W&B's files go below it
    run_id : a generation of the content's run
    segments : those of the content whose rows are said
    resume : continue a run that has the segments before these

    Returns
    -------
    the run's folder, its address on the server, and a remark where this W&B does not take our settings
    """
    run, remark = _opened(staging, content, run_id, mode, resume=resume)
    try:
        path, url = Path(run.dir).parent, run.url
        if staging.resolve() not in path.resolve().parents:
            raise RecordError(
                f"W&B writes to {path} instead of {staging}; check that the sweep's folder can be written"
            )
        # Never `step=`: W&B drops rows whose step goes backwards. These declarations give charts their axis.
        for kind in _STEP_METRICS:
            run.define_metric(f"{kind}/*", step_metric=f"{kind}/index")
        for segment in segments:
            for row in segment.rows():
                run.log(row)
        _attach_files(staging, run, content, run_id)
        run.summary.update({**content.summary, **content.published()})
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish(exit_code=content.exit_code)
    return path, url, remark


def _opened(staging: Path, content: RunContent, run_id: str, mode: str, *, resume: bool) -> tuple[Any, str]:
    import wandb

    own = settings(
        staging,
        mode=mode,
        project=content.project,
        entity=content.entity,
        run_id=run_id,
        run_name=content.name,
        run_group=content.group,
        run_job_type=content.job_type,
        run_tags=content.tags,
        resume="must" if resume else None,
    )
    made, remark = settings_of(wandb, own)
    return wandb.init(settings=made, config=content.config), remark


def _attach_files(staging: Path, run: Any, content: RunContent, run_id: str) -> None:
    """The run's files as an artifact; unchanged files are not uploaded again."""
    if not content.files:
        return
    import wandb

    artifact = wandb.Artifact(
        artifact_name(content, run_id), type=content.artifact_type, metadata={"segments": content.digests}
    )
    for name, file in content.files:
        artifact.add_file(str(file), name=name, policy="immutable")
    if content.bundled:
        artifact.add_file(str(_bundle(staging, content)), name=SERIES, policy="immutable")
    run.log_artifact(artifact)


def _bundle(staging: Path, content: RunContent) -> Path:
    """Write the archive; equal files give an equal one."""
    path = staging / f"{content.run_id}-{SERIES}"
    with ZipFile(path, "w") as archive:
        for name, file in content.bundled:
            archive.writestr(ZipInfo(name), file.read_bytes())
    return path


def artifact_name(content: RunContent, run_id: str) -> str:
    """Name of the artifact with a run's files: its full series, or its profiles."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{content.artifact_type}-{run_id}")
