"""The cost of a policy step: FLOPs, bytes moved, and bytes at the peak."""
