"""What users' tests may use."""
