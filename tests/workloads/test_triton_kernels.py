"""Triton's kernels in its interpreter, on a few numbers; the tests of their folders take more."""

from __future__ import annotations

import pytest
from triton_targets import interpreted

CODE = """
import json
import torch
from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.kernels.triton_kernel import TritonKernel
from perfsweep.workloads.probe1d.maths.buckets import Bucket
from perfsweep.workloads.probe1d.maths.event_sums import EagerKernel
from perfsweep.workloads.probe1d.maths.precision import PRECISIONS
from perfsweep.workloads.prover.kernels.triton_trunk import activate

torch.manual_seed(0)
found = {}

# 17 pairs are two programs, 65 events two steps, and the last of either is not full.
x = torch.randn(17, 65).double()
pairs = torch.arange(17).flip(0), torch.randn(17, 1).double(), torch.randn(17, 1).double()
for kind in ("hessian", "loss"):
    both = (kernel(PRECISIONS["f64"], Counts()) for kernel in (TritonKernel, EagerKernel))
    sums, right = (torch.stack(kernel(Bucket(0, 17, x), *pairs, kind)) for kernel in both)
    found[kind] = float((sums - right).abs().max())

for width in (1, 5):
    product, before = torch.randn(2, 3, width)
    bias, scale, shift = torch.randn(3, width)
    normal = torch.nn.functional.layer_norm((product + bias).relu(), (width,), scale, shift)
    for x, right in ((None, normal), (before.clone(), normal + before)):
        kept, following = activate(product, bias, scale, shift, x)
        assert following is kept and (x is None or kept is x)
        found[f"layer {width}, residual {x is not None}"] = float((kept - right).abs().max())
    kept, following = activate(product.bfloat16(), bias, scale, shift, None)
    assert following.dtype == torch.bfloat16 and torch.allclose(following.float(), kept, rtol=1e-2)
print(json.dumps(found))
"""


@pytest.mark.workloads
def test_interpreted_kernels_compute_what_the_operators_do() -> None:
    off = interpreted(CODE)
    assert len(off) == 6
    assert {name: far for name, far in off.items() if far > 1e-5} == {}
