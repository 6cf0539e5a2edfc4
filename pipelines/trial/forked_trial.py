"""What a forked trial begins with; the pack names it, and so imports this module, but no torch."""

from __future__ import annotations

import sys
from pathlib import Path

from perfsweep.pipelines.trial.parent import detach


def forked(spec_file: str, pipe: int | None = None) -> None:
    """First function of a forked trial: a process group of its own, streams into its log.

    `pipe` is the descriptor that one which stays takes its turns from.
    """
    # The pack imports this module too, which must not import torch.
    from perfsweep.pipelines.trial import process

    detach(Path(spec_file).with_name("log.txt"))
    if status := process.main([spec_file, *([] if pipe is None else ["0", str(pipe)])]):
        sys.exit(status)
