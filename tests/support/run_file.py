"""What an offline run's `.wandb` file holds, read back as values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfsweep.pipelines.publish.wandb_file import read_records


@dataclass(frozen=True)
class RunFile:
    """What an offline run's file holds.

    Attributes
    ----------
    config : values by dotted name, as the W&B interface shows nested ones (`toggles.amp`)
    history : rows in the order they were logged, with W&B's own `_step`, `_runtime` and `_timestamp`
    step_metrics : the x axis declared for each metric or pattern of metrics
    artifacts : for each artifact by name, the size in bytes of each file in it
    exit_code : None when the run was not finished
    """

    path: Path
    run_id: str = ""
    project: str = ""
    entity: str = ""
    group: str = ""
    name: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    step_metrics: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, dict[str, int]] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the file reaches to the end of the run; the exit record is written last."""
        return self.exit_code is not None


def read_run(path: Path) -> RunFile:
    """Read a `.wandb` file, or the one in an offline run's folder.

    A torn tail is no error: what was written before it is returned, and `complete` is False.

    Raises
    ------
    RecordError
        The file is missing or is not of W&B.
    """
    if path.is_dir():
        path = next(iter(sorted(path.glob("run-*.wandb"))), path / "run-*.wandb")
    found = RunFile(path)
    for record in read_records(path):
        found = _with(found, record)
    return found


def _with(run: RunFile, record: Any) -> RunFile:
    """What is known of a run after one more record."""
    match record.WhichOneof("record_type"):
        case "run":
            return _described(run, record.run)
        case "config":
            run.config.update(_flat(_items(record.config.update)))
        case "history":
            run.history.append(_items(record.history.item))
        case "summary":
            run.summary.update(_flat(_items(record.summary.update)))
            for item in record.summary.remove:
                run.summary.pop(_key(item), None)
        case "metric":
            run.step_metrics[record.metric.glob_name or record.metric.name] = record.metric.step_metric
        case "artifact":
            run.artifacts[record.artifact.name] = {
                file.path: file.size for file in record.artifact.manifest.contents
            }
        case "exit":
            return replace(run, exit_code=record.exit.exit_code)
    return run


def _described(run: RunFile, said: Any) -> RunFile:
    return replace(
        run,
        run_id=said.run_id,
        project=said.project,
        entity=said.entity,
        group=said.run_group,
        name=said.display_name,
        job_type=said.job_type,
        tags=tuple(said.tags),
        config={**run.config, **_flat(_items(said.config.update))},
    )


def _items(items: Iterable[Any]) -> dict[str, Any]:
    return {_key(item): _value(item) for item in items}


def _key(item: Any) -> str:
    return ".".join(item.nested_key) or item.key


def _value(item: Any) -> Any:
    """The value of an item, as JSON (NaN and Infinity as bare tokens) or as one of the typed fields."""
    if item.value_json:
        return json.loads(item.value_json)
    kind = item.WhichOneof("value") if "value" in item.DESCRIPTOR.oneofs_by_name else None
    if kind in (None, "none"):
        return None
    return json.loads(item.json) if kind == "json" else getattr(item, kind)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted names, without what W&B keeps there about itself."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return {name: value for name, value in flat.items() if not name.startswith("_wandb.")}
