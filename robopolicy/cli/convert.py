"""robopolicy convert"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from robopolicy.cli.options import DatasetCameras, Json
from robopolicy.naming import counted


@dataclass(frozen=True)
class Convert:
    """Convert a dataset from Minari to LeRobot (v3.0), or the other way.

    For example:
        robopolicy convert datasets/sweep-v0 --out datasets/sweep-lerobot
        robopolicy convert datasets/arm --cameras front --out datasets/arm-v0

    The new dataset appears when it is complete.
    """

    source: Positional[Annotated[Path, arg(metavar="DATASET")]]
    """Folder of the dataset. It decides the format of the new dataset: the other one."""
    out: Path
    """Folder of the new dataset. The name of a Minari dataset must end in a version, as in sweep-v0."""
    cameras: DatasetCameras = ()
    json: Json = False

    def run(self) -> None:
        """Convert."""
        from robopolicy.experiments.conversion import convert  # pyarrow is an optional package

        result = convert(self.source, self.out, cameras=self.cameras)
        if self.json:
            print(json_format.dumps(result))
        else:
            episodes = counted(result["episodes"], "episodes")
            print("{dataset}: {0}, {steps:,} steps, in the format of {format}".format(episodes, **result))
