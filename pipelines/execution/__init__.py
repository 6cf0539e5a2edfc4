"""Manifest to finished trials: packs, processes, and what the user sees meanwhile."""
