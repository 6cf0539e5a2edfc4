"""What submitit and Hydra's launcher call the fields of a site profile.

The names are those of ``submitit.AutoExecutor.update_parameters`` and of ``hydra/launcher/submitit_slurm``,
which passes its own on to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Fields = dict[str, Any]
Read = Callable[[Any], Fields]


def _named(field: str) -> Read:
    return lambda value: {field: value}


def _memory(flag: str = "", unit: str = "") -> Read:
    def read(value: Any) -> Fields:
        return {"memory": _gib(float(value)) if unit else str(value), **({"mem_flag": flag} if flag else {})}

    return read


def _gib(number: float) -> str:
    """Gigabytes as sbatch takes them, which are whole ones."""
    return f"{number:.0f}G" if number == int(number) else f"{math.ceil(number * 1024)}M"


def _gpus(flag: str) -> Read:
    def read(value: Any) -> Fields:
        kind, _, count = str(value).removeprefix("gpu:").rpartition(":")
        if not count.isdecimal():
            raise ValueError(f"{value} is no number of GPUs, with or without their type")
        return {"gpus": int(count), "gpu_flag": flag, **({"gpu_type": kind} if kind else {})}

    return read


def _minutes(value: Any) -> Fields:
    """Minutes, or ``hours:minutes:seconds`` with days before it; YAML reads some of these as a number."""
    text = str(value)
    if text.isdecimal():
        return {"time_min": int(text)}
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        raise ValueError(f"{value} is no time that sbatch takes")
    days, dash, rest = text.rpartition("-")
    parts = [*map(int, rest.split(":"))]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    seconds = sum(number * unit for number, unit in zip(parts, units, strict=False))
    return {"time_min": math.ceil((int(days or 0) * 86400 + seconds) / 60)}


def _sbatch(option: str) -> Read:
    return lambda value: {"sbatch": [f"--{option}={value}"]}


_SAME = (
    *(
        "partition",
        "qos",
        "account",
        "constraint",
        "exclude",
        "nodelist",
        "reservation",
        "exclusive",
        "nodes",
    ),
    *("cpus_per_task", "signal_delay_s", "array_parallelism", "setup", "teardown", "python", "srun_args"),
)

READ: Mapping[str, Read] = {
    **{name: _named(name) for name in _SAME},
    **dict.fromkeys(("timeout_min", "time"), _minutes),
    **dict.fromkeys(("tasks_per_node", "ntasks_per_node"), _named("ntasks_per_node")),
    "mem_gb": _memory(unit="G"),
    "mem": _memory(),
    "mem_per_cpu": _memory("mem-per-cpu"),
    "mem_per_gpu": _memory("mem-per-gpu"),
    **dict.fromkeys(("gpus_per_node", "num_gpus"), _gpus("gpus-per-node")),
    "gpus_per_task": _gpus("gpus-per-task"),
    "gres": _gpus("gres"),
    "cpus_per_gpu": lambda value: {"cpus_per_task": int(value), "cpu_flag": "cpus-per-gpu"},
    "use_srun": _named("srun"),
    **{name: _sbatch(name.replace("_", "-")) for name in ("dependency", "mail_type", "mail_user")},
}
"""How each of their parameters is read: fields of a profile and their values."""

LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(
        ("submitit_folder", "folder", "log_folder"), "a sweep has a folder of its own: runs=PATH"
    ),
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


def fields_for(name: str, value: Any) -> Fields:
    """Fields of a profile, with their values, for one parameter of theirs; none where there is no field.

    Raises
    ------
    ValueError
        The value cannot be read.
    """
    read = READ.get(plain(name))
    return read(value) if read else {}


def meant(name: str, value: str = "") -> str:
    """Say what to write for one of their parameters; empty where it is none of theirs.

    >>> meant("mem_gb", "4"), meant("comment")
    ('write cluster.memory=4G', 'leave it out: it holds the token by which jobs are found again')
    """
    if reason := LEFT_OUT.get(plain(name)):
        return f"leave it out: {reason}"
    try:
        fields = fields_for(name, value)
    except ValueError:
        fields = dict.fromkeys(fields_for(name, _EXAMPLE), "VALUE")
    return (
        "write " + " ".join(f"cluster.{one}={_shown(what)}" for one, what in fields.items()) if fields else ""
    )


_EXAMPLE = "1"


def _shown(value: Any) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, list) else str(value) or "VALUE"
