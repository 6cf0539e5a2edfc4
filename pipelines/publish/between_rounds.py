"""Publishing a pack's finished rounds between its rounds, by the pack's parent, never while a trial runs.

How often follows from what it costs: all feeding together takes at most `tracking.share` of a pack's time.
What is not fed here is published when the sweep ends, or by `perfsweep publish`; both read the same records.
Run folders on disk are written only then: nothing looks at them before, and each is written whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from perfsweep.pipelines.publish.published import Published
from perfsweep.pipelines.store.records import Manifest, SweepFolder


def publish(*arguments: Any) -> Published:
    """Publish finished rounds; what that needs is imported when it is needed, after the first trials."""
    from perfsweep.pipelines.publish import publishing

    return publishing.publish(*arguments)


FIRST_COST_S = 3.0
"""What the first feeding is expected to cost; later ones are expected to cost what the last one did."""

PATIENCE_S = 15.0
"""Time that one run may take between rounds, where `publish` at the end may have more."""


class Feeder:
    """Publishes between rounds; after the first failure it says so once and rests."""

    def __init__(
        self,
        folder: SweepFolder,
        manifest: Manifest,
        pack: str,
        send: Callable[..., Published] = publish,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        tracking = manifest.sweep.tracking
        self._folder, self._pack, self._send, self._clock = folder, pack, send, clock
        self._mode, self._share = tracking.mode, tracking.share
        self._patience_s = min(tracking.patience_s, PATIENCE_S)
        self._resting = tracking.mode != "online"
        self._ended, self._cost_s = clock(), FIRST_COST_S

    def between_rounds(self) -> None:
        """Publish what is new, if the share allows it by now."""
        started = self._clock()
        if self._resting or (started - self._ended) * self._share < self._cost_s:
            return
        try:
            done = self._send(self._folder, [self._pack], self._mode, self._patience_s)
        except Exception as error:  # noqa: BLE001 - whatever a copy for looking at does, measuring goes on
            done = Published(warning=f"{type(error).__name__}: {error}")
        self._ended = self._clock()
        self._cost_s = self._ended - started
        for message in filter(None, (done.notice, done.warning)):
            print(f"W&B: {message}", flush=True)
        # A server that could not be reached is not asked again in this pack either.
        self._resting = done.warning is not None or done.mode != self._mode
