"""`python -m robopolicy`, and the `robopolicy` command."""

import sys
from importlib.util import find_spec


def main() -> int:
    """All commands, or those of the runtime where nothing else is installed, as on a robot.

    `doctor` works even where what is installed is so broken that no other command can be imported.
    """
    asked = sys.argv[1:]
    try:
        if find_spec("tyro") is None and asked[:1] != ["doctor"]:
            from robopolicy.runtime.__main__ import main as run
        else:
            from robopolicy.cli import main as run
    except Exception as error:  # what is installed may be broken in any way
        if asked[:1] == ["doctor"]:
            from robopolicy.doctor.findings import report

            return report("--json" in asked)
        print(f"robopolicy: {error}; see what is missing with: robopolicy doctor", file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
