"""Which arms next: what `tune` and `frontier` measure, and what their measurements say."""
