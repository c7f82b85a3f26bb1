"""Training by evolution strategies and by behaviour cloning.

Rollout workers, stopping rules, logs and checkpoints of runs; recording and reading of
datasets of Minari and LeRobot.
"""
