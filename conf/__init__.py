"""Hydra's configuration values; their types live beside the stages that read them."""
