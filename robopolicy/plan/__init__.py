"""The attention mechanism for a budget of FLOPs: predicted errors, counted FLOPs, Pareto fronts."""
