"""Clock, recorder, steady state, counters, environment, statistics, parity: pure, no Hydra, no files."""
