"""What files and folders of a configuration say, looked at when a sweep is planned."""

from __future__ import annotations

from pathlib import Path

from perfsweep.workloads.latentwire import checkpoint, facts
from perfsweep.workloads.latentwire.build import model_shapes
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.corpus import layouts_for, load_examples
from perfsweep.workloads.latentwire.maths.local_models import check_weights
from perfsweep.workloads.latentwire.presets import KINDS


def check_files(config: LatentWireConfig) -> None:
    """Refuse what a trial would refuse of files: data, models' folders and a checkpoint.

    Of weights only the headers are read, and no examples are tokenised.

    Raises
    ------
    ConfigError
        A file is missing, broken or not computed here.
    """
    if config.data not in KINDS:
        load_examples(config)
    if config.lm_path is not None:
        shapes = model_shapes(config)
        layouts_for(config, shapes, Path())
        for shape, folder in zip(shapes, config.lm_folders, strict=True):
            check_weights(shape, folder)
    if config.resume is not None:
        folder = Path(config.resume)
        about, _ = checkpoint.read(folder)
        checkpoint.refuse_other(folder, about, facts.of_configuration(config))
        checkpoint.read_moments(folder)
