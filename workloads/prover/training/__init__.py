"""Training the policy before it is evaluated."""
