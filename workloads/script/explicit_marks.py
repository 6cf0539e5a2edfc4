"""Where a script's explicit marks arrive while it is measured. Imports nothing: scripts import it.

Outside a trial `arrived` is None, and `perfsweep.mark` does nothing.
"""

from __future__ import annotations

from collections.abc import Callable

arrived: Callable[[], None] | None = None
"""Called with each explicit mark."""
