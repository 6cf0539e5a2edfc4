"""Records to W&B: the only code that talks to it, except `perfsweep.pipelines.trial.step_logging`."""
