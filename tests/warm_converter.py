"""One converter for all policies that a process of tests converts: imports take longer than a conversion.

Run as a program, it reads a JSON line `[number, folder, out]`, converts, and answers `[number, complaint]`.
"""

import json
import os
import subprocess
import sys
import traceback
from itertools import count
from pathlib import Path


class Converter:
    """Stands in for `robopolicy.bundles.onnx._converter`; a conversion runs in the process of the others."""

    def __init__(self):
        self.process, self.answers, self.numbers = None, {}, count()

    def __call__(self, given, out):
        if self.process is None:
            self.process = _start()
        number = next(self.numbers)
        paths = [str(Path(path).absolute()) for path in (given, out)]  # its current folder is another one
        print(json.dumps([number, *paths]), file=self.process.stdin, flush=True)
        return Conversion(self, number)

    def answer(self, number):
        """The complaint of a conversion, empty if there is none; another one may answer first."""
        while number not in self.answers:
            answered, complaint = json.loads(self.process.stdout.readline())
            self.answers[answered] = complaint
        return self.answers[number]

    def end(self):
        """End the process; the next conversion starts a new one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


class Conversion:
    """What `robopolicy.bundles.onnx` uses of a process."""

    def __init__(self, converter, number):
        self.converter, self.number, self.returncode = converter, number, None

    def communicate(self):
        complaint = self.converter.answer(self.number)
        self.returncode = int(bool(complaint))
        return "", complaint

    def kill(self):
        if self.returncode is None:
            self.converter.end()

    def wait(self):
        """`kill` has waited."""


def _start():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    return subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )


def _serve():
    from robopolicy.bundles.convert import convert

    for line in sys.stdin:
        number, given, out = json.loads(line)
        try:
            convert(Path(given), Path(out))
            complaint = ""
        except Exception:
            complaint = traceback.format_exc()
        print(json.dumps([number, complaint]), flush=True)


if __name__ == "__main__":
    _serve()
