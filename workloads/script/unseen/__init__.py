"""Training that no step of an optimiser in this process shows: updates by hand, and processes of its own."""
