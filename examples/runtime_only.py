"""A bundle where numpy and onnxruntime are all that there is, as on a robot.

    python examples/runtime_only.py BUNDLE

It plays what was recorded with the bundle and compares commands, so any bundle will do
(robopolicy export stepping-stones-angular-8x8 --out BUNDLE).

Expected: a line for each input and for the command, with units; then "commands as recorded", and "no JAX".
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from robopolicy.runtime import BundlePolicy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    folder = parser.parse_args().bundle
    try:
        policy = BundlePolicy.load(folder)  # every file is compared with its sum, and nothing is unpickled
    except (OSError, ValueError) as error:
        parser.error(str(error))
    manifest = policy.manifest
    for value in [*manifest.inputs.values(), manifest.outputs["command"]]:
        units = ", ".join(dict.fromkeys(value.units))
        print(f"{value.name}: {value.dtype}{list(value.shape)} in {units}")

    with np.load(folder / "golden.npz", allow_pickle=False) as recorded:
        seen = {name: recorded[name] for name in manifest.inputs}
        wanted = recorded["command"]
    off = 0.0
    for row in range(min(10, len(wanted))):
        command = policy.act({name: values[row] for name, values in seen.items()})
        off = max(off, float(np.abs(command - wanted[row]).max()))
    same = off <= manifest.tolerances["command"]
    print(f"commands {'as recorded' if same else 'differ'}: off by {off:.1e} at most")

    loaded = [name for name in ("jax", "flax", "mujoco", "pybullet") if name in sys.modules]
    print(f"{', '.join(loaded)} was imported" if loaded else "no JAX and no engine was imported")
    return 0 if same and not loaded else 1


if __name__ == "__main__":
    sys.exit(main())
