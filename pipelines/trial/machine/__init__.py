"""What a trial finds: the machine, its GPUs, packages and energy, and what disturbs them."""
