"""Training by evolution strategies and by behaviour cloning.

Rollout workers, stopping rules, logs and checkpoints of runs, and Minari datasets, which it records and reads.
"""
