"""What submitit and Hydra's launcher call the fields of a site profile, and a profile of what they were told.

The names are those of ``submitit.AutoExecutor.update_parameters`` and of ``hydra/launcher/submitit_slurm``,
which passes its own on to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from perfsweep.slurm.site import OWN_OPTIONS, PLAIN_OPTIONS

Fields = dict[str, Any]
Read = Callable[[Any], Fields]


def _text(field: str) -> Read:
    return lambda value: {field: str(value)}


def _whole(field: str) -> Read:
    return lambda value: {field: int(value)}


def _texts(field: str) -> Read:
    return lambda value: {field: [*map(str, value)] if isinstance(value, list) else [str(value)]}


def _memory(flag: str = "") -> Read:
    return lambda value: {"memory": str(value), **({"mem_flag": flag} if flag else {})}


def _gigabytes(value: Any) -> Fields:
    """Memory as sbatch takes it, in whole numbers."""
    number = float(value)
    return {"memory": f"{number:.0f}G" if number == int(number) else f"{math.ceil(number * 1024)}M"}


def _gpus(flag: str) -> Read:
    def read(value: Any) -> Fields:
        kind, _, count = str(value).removeprefix("gpu:").rpartition(":")
        if not count.isdecimal():
            raise ValueError(f"{value} is no number of GPUs, with or without their type")
        return {"gpus": int(count), "gpu_flag": flag, **({"gpu_type": kind} if kind else {})}

    return read


def _minutes(value: Any) -> Fields:
    """Read minutes, or ``minutes:seconds``, ``hours:minutes:seconds`` and ``days-hours``, as sbatch does."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", str(value))
    if found is None:
        raise ValueError(f"{value} is no time that sbatch takes")
    days, *parts = (int(number) for number in found.groups("0"))
    by_hours = found[1] is not None or found[4] is not None
    hours, minutes, seconds = parts if by_hours else (0, *parts[:2])
    return {"time_min": math.ceil(((days * 24 + hours) * 60 + minutes) + seconds / 60)}


def _exclusive(value: Any) -> Fields:
    return {"exclusive": bool(value)} if isinstance(value, bool) else _sbatch("exclusive")(value)


def _sbatch(option: str) -> Read:
    return lambda value: {"sbatch": [f"--{option}" if value is True else f"--{option}={value}"]}


READ: Mapping[str, Read] = {
    **{name: _text(name) for name in (*PLAIN_OPTIONS, "python")},
    **{name: _whole(name) for name in ("nodes", "cpus_per_task", "signal_delay_s", "array_parallelism")},
    **{name: _texts(name) for name in ("setup", "teardown", "srun_args")},
    **dict.fromkeys(("timeout_min", "time"), _minutes),
    **dict.fromkeys(("tasks_per_node", "ntasks_per_node"), _whole("ntasks_per_node")),
    "mem_gb": _gigabytes,
    "mem": _memory(),
    "mem_per_cpu": _memory("mem-per-cpu"),
    "mem_per_gpu": _memory("mem-per-gpu"),
    **dict.fromkeys(("gpus_per_node", "num_gpus"), _gpus("gpus-per-node")),
    "gpus_per_task": _gpus("gpus-per-task"),
    "gres": _gpus("gres"),
    "cpus_per_gpu": lambda value: {"cpus_per_task": int(value), "cpu_flag": "cpus-per-gpu"},
    "exclusive": _exclusive,
    "use_srun": lambda value: {"srun": bool(value)},
    **{name: _sbatch(name.replace("_", "-")) for name in ("dependency", "mail_type", "mail_user")},
}
"""How each of their parameters is read: fields of a profile and their values."""

LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(("submitit_folder", "folder"), "a sweep has a folder of its own: runs=PATH"),
    **dict.fromkeys(("name", "job_name"), "jobs are called after the sweep: name=NAME"),
    "comment": "it holds the token by which jobs are found again",
    "stderr_to_stdout": "both always go into one file",
    "max_num_timeout": "a pack continues as often as each try finishes more of it",
    "additional_parameters": "options of sbatch are a list: cluster.sbatch=[--NAME=VALUE]",
}
"""Parameters that no field of a profile is for, and why."""


def plain(name: str) -> str:
    """Name a parameter as submitit's SlurmExecutor does: ``mem_gb`` of ``slurm_mem_gb`` and of ``mem-gb``."""
    return name.replace("-", "_").removeprefix("slurm_")


def meant(name: str, value: str = "") -> str:
    """Say what to write for one of their parameters; empty where it is none of theirs.

    >>> meant("mem_gb", "4")
    'write cluster.memory=4G'
    """
    if reason := LEFT_OUT.get(plain(name)):
        return f"leave it out: {reason}"
    if (read := READ.get(plain(name))) is None:
        return ""
    try:
        fields = read(value)
    except ValueError:
        fields = dict.fromkeys(read("1"), "VALUE")
    return "write " + " ".join(f"cluster.{field}={_shown(what) or 'VALUE'}" for field, what in fields.items())


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(value)}]" if len(value) != 1 or value[0].startswith("-") else value[0]
    return str(value).lower() if isinstance(value, bool) else str(value)


def profile_of(values: Mapping[str, Any]) -> tuple[Fields, dict[str, str]]:
    """Read a launcher's file into fields of a profile, and name each field that was left out, and why.

    Parameters
    ----------
    values : of the file, ``hydra.launcher`` or what is below it; null is not set
    """
    values = _below(values, "hydra", "launcher")
    further = values.get("additional_parameters")
    every = {**values, **(further if isinstance(further, Mapping) else {})}
    fields: Fields = {}
    left: dict[str, str] = {}
    for name, value in every.items():
        if value is None or name in ("_target_", "additional_parameters"):
            continue
        own, reason = _read(name, value, isinstance(further, Mapping) and name in further)
        if reason:
            left[name] = reason
        if "sbatch" in own:
            own["sbatch"] = [*fields.get("sbatch", []), *own["sbatch"]]
        fields |= own
    # What is said nowhere is one GPU in our profile, and none in theirs.
    return {"gpus": 0, **fields}, left


def _below(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        inner = values.get(name)
        values = inner if isinstance(inner, Mapping) else values
    return values


_BASES = ("submitit_slurm", "_self_")


def _read(name: str, value: Any, of_sbatch: bool) -> tuple[Fields, str]:
    """Fields for one of their parameters, or why there are none."""
    if name == "defaults":
        others = [one for one in value if one not in _BASES] if isinstance(value, list) else [value]
        return {}, f"what {', '.join(map(str, others))} says is not read" if others else ""
    if reason := LEFT_OUT.get(plain(name)):
        return {}, reason
    if "${" in str(value) and not re.fullmatch(r"\$\{oc\.env:\w+(,[^${}]*)?\}", str(value)):
        return {}, f"it refers to another configuration: {value}"
    if read := READ.get(plain(name)):
        try:
            return read(value), ""
        except (TypeError, ValueError):
            return {}, f"{value} cannot be read"
    option = name.replace("_", "-")
    if not of_sbatch:
        return {}, "perfsweep does not know it"
    return ({}, "perfsweep writes that itself") if option in OWN_OPTIONS else (_sbatch(option)(value), "")
