"""Records to effects, parity and rulings; measures nothing."""
