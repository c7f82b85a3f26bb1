"""Do the configurations that HRF reports to end in NaN stay finite? (Figure 4, right)

    python benchmarks/finite_losses.py DATASET            # twenty minutes on 2 cores

HRF's five regular random-feature configurations, FAVOR+ with 128 and 64 features and trigonometric ones
with 256, 128 and 64, "did not train by producing Nan loss due to large variance" on the bimanual sweep. Each
is trained here for 150 steps at HRF's three learning rates and at ten times the highest of them, with queries
and keys of length one, as HRF has them, and with the usual scaling, under which they grow.

Expected: not one loss or gradient that is not finite, since features carry their scale as a logarithm; with
the usual scaling, trigonometric denominators may still be near zero, and a step that is not finite is then
undone and counted. Exact softmax and a policy without attention are the controls.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SPECS = (
    "positive_antithetic(m=128)",
    "positive_antithetic(m=64)",
    "trigonometric(m=256)",
    "trigonometric(m=128)",
    "trigonometric(m=64)",
    "softmax",
    "all",
)
RATES = (1e-2, 1e-3, 1e-4, 1e-5)
NORMS = ("unit", "tempered")
STEPS = 150


def trained(data: str, spec: str, norm: str, rate: float, out: Path) -> dict | str:
    """The last record of a short run, or the words that it ended with."""
    words = ["--data", data, "--attention", spec, "--qk-norm", norm, "--learning-rate", str(rate)]
    words += ["--preset", "tiny", "--head", "autoregressive", "--validation", "0"]
    words += ["--steps", str(STEPS), "--warmup", "20"]
    words += ["--validate-every", str(STEPS), "--checkpoint-every", str(STEPS), "--nonfinite", "skip"]
    command = [sys.executable, "-m", "robopolicy", "train", "bc", "--out", str(out), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    dataset = parser.parse_args().dataset
    print(f"loss after {STEPS} steps (steps that were not finite)")
    print(f"{'':30}{'queries, keys':15}" + "".join(f"{rate:>14g}" for rate in RATES))
    broken = 0
    with tempfile.TemporaryDirectory() as scratch:
        for spec in SPECS:
            for norm in NORMS:
                cells = []
                for rate in RATES:
                    found = trained(dataset, spec, norm, rate, Path(scratch) / f"{spec}-{norm}-{rate}")
                    if isinstance(found, str):
                        cells.append("gave up")
                        print(found, file=sys.stderr)
                    else:
                        cells.append(f"{found['loss']:.2f} ({found['skipped']})")
                    broken += norm == "unit" and (isinstance(found, str) or found["skipped"] > 0)
                print(f"{spec:30}{norm:15}" + "".join(f"{cell:>14}" for cell in cells), flush=True)
    print(f"{'NO ' if broken else 'yes'} all finite with queries and keys of length one")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
