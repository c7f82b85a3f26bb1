"""What a policy step costs: FLOPs, bytes that it moves, and bytes that it needs at its peak."""
