"""The loop around the objective: updates, metrics, compiled and captured forms."""
