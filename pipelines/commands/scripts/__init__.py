"""Commands about a training script: from what acts on it to a faster one."""
