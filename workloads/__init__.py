"""What is measured: workloads, their toggles and the contract they share."""
