"""Power at rest, as a pack keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.store.idle import IdlePower, read_idle, write_idle
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.errors import RecordError


def test_the_latest_measurement_of_a_pack_is_kept(tmp_path: Path) -> None:
    folder, idle = SweepFolder(tmp_path), IdlePower(source="NVML", watts={"gpu0": 70.5}, step_s=0.1)
    assert read_idle(folder, "p000") is None
    write_idle(folder, "p000", IdlePower(withheld="there is no counter"))
    write_idle(folder, "p000", idle)
    assert read_idle(folder, "p000") == idle
    assert read_idle(folder, "p001") is None


@pytest.mark.parametrize("text", ["{", '{"watts": "many"}', '{"other": 1}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    folder = SweepFolder(tmp_path)
    write_idle(folder, "p000", IdlePower())
    (file,) = folder.pack_dir("p000").iterdir()
    file.write_text(text)
    with pytest.raises(RecordError, match=r"idle\.json cannot be read \(ValidationError\); remove it"):
        read_idle(folder, "p000")
