"""Importing this makes every forked child fail, as a parent that has used CUDA does."""

import os

os.register_at_fork(after_in_child=lambda: os._exit(3))
