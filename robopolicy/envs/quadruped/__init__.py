"""The stepping stones: a Laikago quadruped, its low-level control, terrain and depth cameras."""
