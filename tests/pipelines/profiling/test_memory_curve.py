"""Memory along a slice: every allocation to the byte, peaks by phase, and the picture."""

from __future__ import annotations

import numpy as np
import pytest
from toys.allocating import INNER, LARGE, SMALL

from perfsweep.pipelines.config.types import MeasureConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.profiling import profiled_process
from perfsweep.pipelines.profiling.profile_trials import Profiling
from perfsweep.pipelines.report.pictures import memory_chart
from perfsweep.pipelines.report.pictures.memory_chart import MOST_POINTS, thinned
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Kept, MemoryCourse, ProfileSpec, read_course, read_profile
from perfsweep.pipelines.store.records import Outcome, SweepFolder
from perfsweep.workloads.api import Device

ITERATIONS = 3


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A profile of the toy's memory over three iterations, in this process."""
    folder = tmp_path_factory.mktemp("memory")
    command = SweepCommand(
        workload={"name": "toys.allocating:Allocating"},
        measure=MeasureConfig(iterations=6, warmup_max=6),
        sweep=SweepConfig(name="profile"),
    )
    manifest = plan.alone(plan.single_arm(command, Device()), command)
    spec = Profiling(SweepFolder(folder), manifest, manifest.arms[0]).spec()
    place = folder / "memory"
    place.mkdir()
    options = ProfileConfig(tool="memory", active=ITERATIONS, repeats=1)
    record = profiled_process.run(ProfileSpec(trial=spec, options=options), place)
    assert record.outcome is Outcome.OK, record.failure
    return read_profile(place)


@pytest.fixture(scope="module")
def course(kept: Kept) -> MemoryCourse:
    found = read_course(kept.folder)
    assert found is not None
    return found


@pytest.mark.slow
def test_what_tensors_hold_is_known_to_the_byte_and_ends_as_it_began(course: MemoryCourse) -> None:
    assert course.peak_at()[0] == SMALL + LARGE + INNER
    assert course.allocated_bytes[-1] == course.allocated_bytes[0] == 0
    one = [SMALL, SMALL + LARGE, SMALL + LARGE + INNER, SMALL + LARGE, SMALL, 0]
    large = course.allocated_bytes[1:].reshape(-1, len(one))
    assert large.tolist() == [one] * ITERATIONS


@pytest.mark.slow
def test_a_phase_peaks_at_what_is_held_in_it_whoever_allocated_it(course: MemoryCourse) -> None:
    assert course.phase_peaks() == {
        "large": SMALL + LARGE + INNER,
        "large/inner": SMALL + LARGE + INNER,
        "small": SMALL,
    }


@pytest.mark.slow
def test_a_picture_lies_beside_the_profile(kept: Kept) -> None:
    file = memory_chart.write_picture(kept)
    assert file is not None and file.parent == kept.folder and file.read_text().startswith("<svg")


def test_thinning_a_line_keeps_its_peak() -> None:
    sizes = np.zeros(50_000, np.int64)
    sizes[31_337] = 7
    times, drawn = thinned(np.arange(50_000), sizes)
    assert len(drawn) == MOST_POINTS and drawn.max() == 7
    assert times[drawn.argmax()] == 31_337 and (np.diff(times) > 0).all()
