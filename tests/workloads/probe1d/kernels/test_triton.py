"""The CUDA kernel without a GPU: its sums in Triton's interpreter, and its code for three kinds of GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton.language as tl
from triton_targets import build, interpreted

from perfsweep.workloads.probe1d.kernels.triton_kernel import BLOCK_K, BLOCK_P, _sums

HERE = Path(__file__).parent
BOUND = {"f32": 3e-6, "f64": 1e-12, "block": 3e-6}
"""As test_kernels has them for the kernels of the CPU."""

DEFINITION = """
import json
import test_kernels as kernels
import torch
import triton
import triton.language as tl
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.kernels import triton_kernel
from perfsweep.workloads.probe1d.kernels.triton_kernel import TritonKernel
from perfsweep.workloads.probe1d.maths.buckets import Bucket
from perfsweep.workloads.probe1d.maths.precision import PRECISIONS

worst = {}
for precision in ("f32", "f64", "block"):
    kernel = TritonKernel(PRECISIONS[precision], Counts())
    for shape in (*kernels.SHAPES, (2, 4, 1), (17, 65, 1)):
        bucket, row, b, w, expected = kernels.bucket_and_pairs(*shape, PRECISIONS[precision].compute)
        for kind, sums in (("loss", expected), ("hessian", expected[:5])):
            off = kernels.worst(kernel(bucket, row, b, w, kind), sums)
            worst[precision] = max(off, worst.get(precision, 0.0))

@triton.jit
def rounded(t):
    return tl.log(1.0 + t)

def small_losses():
    b = torch.tensor([[-6.0], [-12.0], [-17.0], [-30.0]])
    rows = Bucket(0, 4, torch.zeros(4, 16)), torch.arange(4), b, torch.zeros(4, 1)
    found = TritonKernel(PRECISIONS["f32"], Counts())(*rows, "loss")[5]
    return float((found / (16 * b.double().exp().log1p()) - 1).abs().max())

as_it_is = small_losses()
triton_kernel._log1p = rounded
print(json.dumps([worst, as_it_is, small_losses()]))
"""


@pytest.mark.workloads
def test_the_interpreted_kernel_gives_the_sums_of_the_definition_and_small_losses_their_digits() -> None:
    worst, as_it_is, by_the_logarithm_of_a_rounded_sum = interpreted(DEFINITION, HERE)
    assert {name: off < BOUND[name] for name, off in worst.items()} == dict.fromkeys(BOUND, True)
    assert as_it_is < 1e-6
    assert by_the_logarithm_of_a_rounded_sum > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compute", "sums", "kind", "architecture"),
    [
        ("float32", "float32", 0, 90),
        ("float32", "float32", 1, 100),
        ("float64", "float64", 1, 80),
        ("float32", "float64", 1, 90),
    ],
)
def test_the_kernel_compiles_without_spilling(
    compute: str, sums: str, kind: int, architecture: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pointer = {"float32": "*fp32", "float64": "*fp64"}
    arguments = {
        "x_ptr": pointer[compute],
        **dict.fromkeys(("b_ptr", "w_ptr", "out_ptr"), pointer[sums]),
        "row_ptr": "*i64",
        "pairs": "i32",
        "width": "i32",
    }
    constants = {"KIND": kind, "COMPUTE": getattr(tl, compute), "SUMS": getattr(tl, sums)}
    block = BLOCK_P[getattr(torch, compute)]
    built = build(_sums, arguments, {**constants, "P": block, "K": BLOCK_K}, architecture)
    assert built.spilled == 0
    assert built.shared <= 48 * 1024


def test_counts_of_every_kind_share_one_compiled_kernel() -> None:
    shared = {one.name for one in _sums.params if one.do_not_specialize}
    assert shared == {"pairs", "width"}  # a count of 1, or one that 16 divides, would have one of its own
