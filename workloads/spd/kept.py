"""Results of a decomposition: four files in a folder.

``decomposition.safetensors``  V, U and importance functions: ``components.X.V``, ``importance.X.weights.i``
``decomposition.json``         modules and their sizes, forms, iterations done, configuration, figures on
                               held-out rows
``checkpoint.pt``              everything that goes on, for ``workload.resume``
``upstream.pth``               the same values by upstream's names, with the frozen network's
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.reference import Reference
from perfsweep.workloads.training.checkpoints import write
from perfsweep.workloads.weight_files import write_safetensors

DECOMPOSITION, DESCRIPTION = "decomposition.safetensors", "decomposition.json"
CHECKPOINT, UPSTREAM = "checkpoint.pt", "upstream.pth"


def write_all(arm: Reference, folder: Path) -> None:
    """Write all files into an existing folder.

    Raises
    ------
    ConfigError
        The folder cannot be written to.
    DivergedError
        A loss is no number: there is nothing worth keeping.
    """
    arm.check_losses()
    arm.writer.flush()
    decomposition = arm.decomposition
    values = {name: tensor.cpu() for name, tensor in decomposition.state().items()}
    try:
        write_safetensors(folder / DECOMPOSITION, values)
        write(arm.state(), folder / CHECKPOINT)
        theirs = upstream.exported(values, arm.target, arm.sites, decomposition.frequencies)
        write({name: tensor.cpu().contiguous() for name, tensor in theirs.items()}, folder / UPSTREAM)
        text = json.dumps(description(arm), indent=2)
        (folder / DESCRIPTION).write_text(text + "\n")
    except OSError as error:
        raise ConfigError(f"keep={folder} cannot be written to: {error.strerror or error}") from error


def description(arm: Reference) -> dict[str, Any]:
    """What the tensors are, as plain values."""
    recipe, config = arm.recipe, arm.config
    return {
        "iterations": arm.step,
        "modules": [
            {"name": site.name, "kind": site.kind, "in": site.d_in, "out": site.d_out, "C": site.count}
            for site in arm.sites
        ],
        "importance": recipe.importance,
        "hidden": list(recipe.hidden),
        "transformer": recipe.transformer and dataclasses.asdict(recipe.transformer),
        "upstream": upstream.COMMIT,
        "sigmoid": config.sigmoid,
        "configuration": _differing(config),
        "figures": {
            name: value for name, value in arm.evaluate(arm.step).items() if "ci_histogram" not in name
        },
    }


def _differing(config: SpdConfig) -> dict[str, Any]:
    """The fields that are not as they are by default, and the preset."""
    given = dataclasses.asdict(config)
    default = dataclasses.asdict(SpdConfig())
    return {name: value for name, value in given.items() if name == "preset" or value != default[name]}
