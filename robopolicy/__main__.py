"""`python -m robopolicy`, and the `robopolicy` command."""

import sys
from importlib.util import find_spec


def main() -> int:
    """All commands, or those of the runtime where nothing else is installed, as on a robot."""
    if find_spec("tyro") is None:
        from robopolicy.runtime.__main__ import main as run
    else:
        from robopolicy.cli import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
