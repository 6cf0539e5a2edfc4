"""Independent judges: nothing here imports what it judges."""
