"""Manifest to finished trials: packs, processes, and what a person sees meanwhile."""
