"""Write a bundle's golden vectors for check.c: python write_rows.py BUNDLE rows.bin

A row is a 32-bit number, which is 1 where an episode begins, and the bytes of `policy_readings`.
"""

import sys

import numpy as np

from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.golden import read_golden


def main() -> None:
    bundle = open_bundle(sys.argv[1])
    manifest = bundle.manifest
    with open(sys.argv[2], "wb") as file:
        for row, (readings, _) in enumerate(read_golden(bundle)):
            parts = [np.uint32(row == 0 or row in manifest.begins).tobytes()]
            size = 0
            for name, value in manifest.inputs.items():
                gap = -size % np.dtype(value.dtype).itemsize  # as a compiler aligns members
                parts += [bytes(gap), readings[name].tobytes()]
                size += gap + value.size
            parts.append(bytes(-size % max(np.dtype(v.dtype).itemsize for v in manifest.inputs.values())))
            file.write(b"".join(parts))


if __name__ == "__main__":
    main()
