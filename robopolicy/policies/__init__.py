"""Neural policies: the Implicit Attention Policy and the Vision-Performer, their settings and parameters.

A policy maps one observation to an action in [-1, 1]. The baselines without observations are here too.
"""
