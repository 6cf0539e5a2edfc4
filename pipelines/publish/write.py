"""Saying a run's content to wandb: the only code that opens runs of a sweep, offline and online alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from perfsweep.pipelines.config.tracking import settings, settings_of
from perfsweep.pipelines.publish.content import RunContent, Segment
from perfsweep.workloads.errors import RecordError

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
