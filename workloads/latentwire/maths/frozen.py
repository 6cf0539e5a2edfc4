"""The frozen models of a training: their shapes, their weights, and what serves each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.maths import losses
from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.maths.local_models import load_weights
from perfsweep.workloads.latentwire.maths.model_config import read_shape
from perfsweep.workloads.latentwire.maths.trainables import Trained
from perfsweep.workloads.latentwire.presets import LMS, LMConfig

DTYPES = {"float32": torch.float32, "float64": torch.float64}
LM_SEED = 100
HOST_DRAWN = 100_000_000  # parameters up to which weights are drawn on the host, the same for every device


def model_shapes(config: LatentWireConfig) -> list[LMConfig]:
    """Shapes of the frozen models: the preset's, or those of local folders."""
    if config.lm_path is not None:
        shapes = [read_shape(folder, config.inert_fields) for folder in config.lm_folders]
        config.require_depth(shapes)
        config.require_targets(shapes)
        return shapes
    return [LMS[name] for name in config.sizes.lms[: config.models]]


def frozen_lm(config: LatentWireConfig, number: int, shape: LMConfig, device: torch.device) -> CausalLM:
    """One frozen model with weights of its folder, or drawn by its number alone."""
    large = shape.body_parameters + shape.head_parameters > HOST_DRAWN
    generator = torch.Generator(device if large else "cpu").manual_seed(LM_SEED + number)
    lm = CausalLM(shape, generator, DTYPES[config.dtype])
    if config.lm_path is not None:
        load_weights(lm, config.lm_folders[number])
    return lm.to(device)


@dataclass
class Model:
    """One frozen model with all that serves it.

    Attributes
    ----------
    before, anchor : [n, d] embedded tokens around the soft ones
    rho : [] root mean square of the embedding table before any rounding
    mixture : [4] how much each term counts
    table : mean and deviation [d] of the table's entries, where a loss asks for them
    """

    number: int
    lm: CausalLM
    trained: Trained
    before: Tensor
    anchor: Tensor
    rho: Tensor
    mixture: Tensor
    table: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(
        cls, number: int, lm: CausalLM, trained: Trained, rho: Tensor, layout: Layout, manifold: bool = False
    ) -> Model:
        """A model whose rows are written as `layout` says, with statistics of its table for `manifold`."""
        before, anchor = (
            lm.embed(torch.tensor(ids, device=lm.table.device, dtype=torch.long)).detach()
            for ids in (layout.before, layout.anchor_ids)
        )
        wide = lm.table.float() if manifold else None
        table = None if wide is None else (wide.mean(0), wide.std(0))
        return cls(number, lm, trained, before, anchor, rho, losses.mixed(lm.table.device, rho.dtype), table)
