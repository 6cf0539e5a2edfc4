"""Named sweeps of the prover: what their fast arms are measured against."""

from __future__ import annotations

import pytest
import yaml
from documented import ROOT

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.prover.config import ProverConfig
from perfsweep.workloads.prover.workload import Prover

HEADLINES = sorted((ROOT / "conf/sweep/prover").glob("headline*.yaml"))
SPACE = Space(Prover.toggles_named(["mkl_vectors"]), ProverConfig(), Device(compiler=True))


@pytest.mark.parametrize("file", HEADLINES, ids=lambda file: file.stem)
def test_a_headline_is_measured_against_the_naive_path_and_what_upstream_ships(file):
    """References are naive but for leaving early, being compiled, or MKL's vectors; the slab is the same."""
    written = yaml.safe_load(file.read_text())["sweep"]["references"]
    references = {name: SPACE.legal(levels) for name, levels in written.items()}
    early, compiled = (
        {"early_exit_all": "sync"},
        {"pad_to_slab": "done_row", "warmup": "exact", "compile": "default"},
    )
    assert next(iter(references)) == "naive"
    for name, more in {
        "naive_early_exit": early,
        "naive_compiled": compiled,
        "as_shipped": {**early, **compiled},
        "naive_wide": {"mkl_vectors": "all"},
    }.items():
        assert references[name] == {**references["naive"], **more}
