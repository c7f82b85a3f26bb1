"""LeRobot datasets of format v3.0: reading, writing, and both ways between them and Minari datasets.

Its modules need pyarrow, which is optional; this one does not.
"""

from pathlib import Path

INFO = "meta/info.json"
OURS = "meta/robopolicy.json"  # what LeRobot's metadata cannot hold of a dataset of this library


def is_lerobot(path: Path) -> bool:
    """Whether a folder looks like a LeRobot dataset of any version."""
    return (path / INFO).is_file()


def is_foreign(path: Path) -> bool:
    """Whether a folder looks like a LeRobot dataset that another program has written."""
    return is_lerobot(path) and not (path / OURS).is_file()
