"""The runtime for robots: `BundlePolicy.load(bundle).act(observation)`, on numpy and onnxruntime only."""

from robopolicy.runtime.manifest import BundleError
from robopolicy.runtime.policy import BundlePolicy

Policy = BundlePolicy  # the README files of older bundles import this name

__all__ = ["BundleError", "BundlePolicy"]
