"""A W&B backend on 127.0.0.1 for tests: runs, history, artifacts, the public API, and faults on demand."""

from loopback.server import Action, Fault, Loopback

__all__ = ["Action", "Fault", "Loopback"]
