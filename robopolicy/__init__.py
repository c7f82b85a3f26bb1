"""Vision policies for robots with linear-time random-feature attention, priced in FLOPs.

Importing this package starts neither JAX nor an engine; the rooms below it do, when they are used.
"""

__version__ = "0.1.0"
