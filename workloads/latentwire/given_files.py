"""What the files that a configuration names say, read when a sweep is planned."""

from __future__ import annotations

from pathlib import Path

from perfsweep.workloads.latentwire import checkpoint, presets
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.corpus import layouts_for, load_examples
from perfsweep.workloads.latentwire.maths.frozen import model_shapes
from perfsweep.workloads.latentwire.maths.local_models import check_weights


def check_files(config: LatentWireConfig) -> None:
    """Refuse what a trial would refuse of files: data, models' folders and a checkpoint.

    Of weights only the headers are read, and no examples are tokenised.

    Raises
    ------
    ConfigError
        A file is missing, broken or not computed here.
    """
    if config.data not in presets.KINDS:
        load_examples(config)
    if config.lm_path is not None:
        shapes = model_shapes(config)
        layouts_for(config, shapes, Path())
        for shape, folder in zip(shapes, config.lm_folders, strict=True):
            check_weights(shape, folder)
    if config.resume is not None:
        folder = Path(config.resume)
        about, _ = checkpoint.read(folder)
        checkpoint.refuse_other(folder, about, checkpoint.facts_of_configuration(config))
        checkpoint.read_moments(folder)
