"""`python -m robopolicy`, and the `robopolicy` command."""

import sys

from robopolicy.cli import main

if __name__ == "__main__":
    sys.exit(main())
