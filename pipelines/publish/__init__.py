"""Records to W&B: the only code that talks to it, besides `perfsweep.pipelines.trial.step_logging`."""
