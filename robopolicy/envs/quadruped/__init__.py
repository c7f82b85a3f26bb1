"""The stepping stones: terrain, depth cameras, disturbances, the oracle, and the low level in an engine."""
