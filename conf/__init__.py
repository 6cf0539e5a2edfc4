"""Hydra's configuration values; their types live next to the stages that read them."""
