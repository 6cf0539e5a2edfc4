"""What the toggles change of a script from outside, one module for each kind of change."""
