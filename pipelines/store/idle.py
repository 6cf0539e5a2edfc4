"""Power of a machine at rest, as a pack measured it before its first round."""

from __future__ import annotations

from pydantic import ValidationError

from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import StoredValue, SweepFolder
from perfsweep.workloads.errors import RecordError

_FILE = "idle.json"


class IdlePower(StoredValue):
    """What the counters of energy say of a machine on which no trial runs.

    Attributes
    ----------
    watts : by counter
    source : of the counters, such as NVML
    step_s : time between two changes of the slowest counter; None where none was seen
    withheld : why there are no watts, as one sentence
    """

    source: str = ""
    watts: dict[str, float] = {}
    step_s: float | None = None
    withheld: str = ""


def write_idle(folder: SweepFolder, pack: str, idle: IdlePower) -> None:
    """Keep what a pack measured, in place of what it measured when it was started before."""
    folder.pack_dir(pack).mkdir(parents=True, exist_ok=True)
    write_atomically(folder.pack_dir(pack) / _FILE, idle.model_dump_json(indent=1).encode())


def read_idle(folder: SweepFolder, pack: str) -> IdlePower | None:
    """Read what a pack measured; None where it has measured nothing.

    Raises
    ------
    RecordError
        The file is damaged.
    """
    file = folder.pack_dir(pack) / _FILE
    try:
        return IdlePower.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise RecordError(f"{file} cannot be read ({type(error).__name__}); remove it") from error
