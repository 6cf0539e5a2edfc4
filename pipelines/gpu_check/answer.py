"""What the stages of a GPU check are given and say: a line for each question, and the file with all lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from perfsweep.pipelines.store.files import write_atomically
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import RecordError

if TYPE_CHECKING:
    from perfsweep.pipelines.api import Sweep

ASSUMED = Device("cuda", 1, "NVIDIA H100 80GB HBM3", 80 * 2**30, (9, 0), 16, True)
"""The GPU that is planned for where there is none."""

VERSION = 1
"""Of the file's schema."""

FILE = "gpu-check.json"


class Verdict(StrEnum):
    """How a question was answered."""

    PASS = "PASS"
    FAIL = "FAIL"
    NEEDS_GPU = "needs a GPU"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Line(_Value):
    """One question of a stage: its name, the answer, what was found in words, and the same as numbers."""

    name: str
    verdict: Verdict
    text: str
    figures: dict[str, float] = {}
    stage: str = ""


class Answer(_Value):
    """The lines of all stages, and on what they were found."""

    version: int = VERSION
    device: dict[str, Any]
    driver: str | None
    versions: dict[str, str | None]
    started: float
    seconds: float
    lines: tuple[Line, ...]

    @property
    def passed(self) -> bool:
        """Whether no line failed; what needs a GPU and met none has not."""
        return all(line.verdict is not Verdict.FAIL for line in self.lines)


@dataclass(frozen=True)
class Here:
    """Where a stage asks: the device, and a folder of its own for what it measures."""

    device: Device
    folder: Path

    @property
    def on_gpu(self) -> bool:
        """Whether what only a GPU can answer can be asked."""
        return self.device.type == "cuda"


@cache
def cases() -> dict[str, Any]:
    """Read what each stage runs: values of `conf/gpu_check.yaml`, of which the code knows only the form."""
    return yaml.safe_load(files("perfsweep.conf").joinpath("gpu_check.yaml").read_text())


def measured(here: Here, name: str, overrides: Sequence[str]) -> Sweep:
    """Measure a sweep on this machine and open it.

    Raises
    ------
    PerfsweepError
        It cannot be planned, or a pack broke off.
    """
    from perfsweep.pipelines import api  # brings the report's libraries along

    own = (f"name={name}", f"runs={here.folder}", "cluster=local", "tracking=disabled")
    return api.sweep(*overrides, *own)


def judged(name: str, good: bool, text: str, **figures: float) -> Line:
    """PASS where it is good, else FAIL."""
    return Line(name=name, verdict=Verdict.PASS if good else Verdict.FAIL, text=text, figures=figures)


def needs_gpu(*names: str, text: str = "") -> list[Line]:
    """Lines that have no answer without a GPU, or without as many."""
    return [Line(name=name, verdict=Verdict.NEEDS_GPU, text=text) for name in names]


def write(folder: Path, answer: Answer) -> Path:
    """Write the file of a check."""
    file = folder / FILE
    write_atomically(file, answer.model_dump_json(indent=1).encode() + b"\n")
    return file


def read(file: Path) -> Answer:
    """Read the file of a check.

    Raises
    ------
    RecordError
        There is none, or it is of another version.
    """
    try:
        return Answer.model_validate_json(file.read_text())
    except OSError as error:
        raise RecordError(f"{file}: the GPU check wrote no answer ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise RecordError(f"{file}: {where}: {first['msg']}; check again with this version") from error
