"""What is said across sweeps: baselines, the history of versions, the ledger of claims."""
