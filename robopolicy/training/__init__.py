"""Training by evolution strategies and behaviour cloning: datasets, rollout workers, run folders."""
