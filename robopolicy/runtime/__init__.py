"""What runs on the robot: `Policy.load(bundle).act(observation)`, on numpy and onnxruntime alone."""

from robopolicy.runtime.manifest import BundleError
from robopolicy.runtime.policy import Policy

__all__ = ["BundleError", "Policy"]
