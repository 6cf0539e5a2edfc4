"""LatentWire: soft tokens for frozen language models, from one encoder."""
