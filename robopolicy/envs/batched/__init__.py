"""The stepping stones as one JAX program for many worlds at once, with the numbers of MuJoCo's model."""
