"""Where activations come from, which classes are solved of them, and how they are stored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.data.problem import Csr, Labels, ProbeData
from perfsweep.workloads.probe1d.data.sources import load_data, place, sampled_classes, sources


@pytest.mark.parametrize(("number", "seed", "blocks"), [(None, 0, 5), (9, 0, 5), (2, 0, 2), (4, 3, 4)])
def test_blocks_are_drawn_one_from_each_stratum(number: int | None, seed: int, blocks: int) -> None:
    found = sampled_classes(38, 8, number, seed)
    firsts = sorted({int(one) // 8 for one in found})
    assert len(firsts) == blocks
    whole = [one for first in firsts for one in range(8 * first, min(8 * first + 8, 38))]
    assert found.tolist() == whole
    assert sampled_classes(38, 8, number, seed).tolist() == found.tolist()
    if number in (2, 4):
        edges = [round(i * 5 / number) for i in range(number + 1)]
        assert all(low <= first < high for low, first, high in zip(edges, firsts, edges[1:], strict=False))


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"workload\.data=other is no preset and no \.npz file; choose"
    ) as told:
        load_data("other", 0, "cpu", tmp_path)
    assert all(name in str(told.value) for name in sources())
    assert {"test", "digits", "digits16", "dict_small"} <= set(sources())


def data(*values: float) -> ProbeData:
    count = len(values)
    x = Csr(torch.arange(count + 1), torch.arange(count), torch.tensor(values, dtype=torch.float64), count)
    return ProbeData("some", x, Labels(2, ids=torch.zeros(count, dtype=torch.int64)), x, Labels(2))


def test_a_value_that_a_type_cannot_hold_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"storage_dtype=float16 cannot hold 100000\.0 \(latent 1\); choose a wider"
    ):
        place(data(1.0, 1e5, 1e6), "cpu", "float16")
    with pytest.raises(
        ConfigError, match="storage_dtype=int8 is unknown; choose from: float32, float16, float64"
    ):
        place(data(1.0), "cpu", "int8")
