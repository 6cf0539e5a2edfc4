"""Records to W&B: the only code that talks to it, besides `pipelines.trial.step_logging`."""
