"""What it is computed from."""
