"""Vision policies for robots with linear-time random-feature attention, priced in FLOPs.

Importing this package starts neither JAX nor an engine; the rooms below it do, when they are used.
Where gymnasium is installed, the tasks are registered with it; a robot does without.
"""

import importlib.util
import warnings

__version__ = "0.1.0"

if importlib.util.find_spec("gymnasium"):
    try:
        import robopolicy.envs as _envs  # noqa: F401  (registers the tasks)
    except ImportError as error:  # the runtime and `robopolicy doctor` do without
        warnings.warn(f"the tasks are not registered, as gymnasium cannot be imported: {error}", stacklevel=2)
