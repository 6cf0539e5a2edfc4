"""Hand-written kernels, and how they are called."""
