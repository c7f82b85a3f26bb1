"""Bundles for robots: a policy as ONNX and StableHLO, with manifest, golden vectors and a page to read."""
