"""A bundle's policy.c on every processor at hand: the same bits, and what a controller needs for it.

    python benchmarks/controllers.py                  # the planned policy on all targets; 3 minutes
    python benchmarks/controllers.py --measure        # every shipped policy of the stones, 1,000 observations
    python benchmarks/controllers.py --measure --policies stepping-stones-memory --observations 100
    python benchmarks/controllers.py --kept           # the figures that are kept

A target whose compiler or emulator is not installed is skipped with a line. Debian has them in the packages
clang, gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu, qemu-user, gcc-arm-none-eabi,
libnewlib-arm-none-eabi and qemu-system-arm.

Expected: the hash of all outputs over the golden vectors is that of the manifest on every target. On a
Cortex-M7, `stepping-stones-planned` needs at most 32 kB of flash and 128 kB of RAM.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from robopolicy.experiments.exporting import export
from robopolicy.writing import write_atomically

KEPT = Path(__file__).with_suffix(".json")
CONTROLLER = Path(__file__).parents[1] / "examples" / "controller"
SHIPPED = sorted(
    one.name for one in (files("robopolicy.assets") / "policies").iterdir() if one.name.startswith("stepping")
)
PROVED = "stepping-stones-planned"
FLASH, RAM = 32_000, 128_000  # bytes
NANOSECONDS = 40  # of a tick; the emulator counts an instruction as one
LONGEST = 3600.0  # s
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")


class Target(NamedTuple):
    """How to compile for a processor, and how to run it there."""

    name: str
    compiler: tuple[str, ...]
    runner: tuple[str, ...] = ()
    cortex: bool = False


def cortex_m(number: int, unit: str, board: str, level: str = "-O2") -> Target:
    words = (
        "arm-none-eabi-gcc",
        f"-mcpu=cortex-m{number}",
        "-mthumb",
        f"-mfpu={unit}",
        "-mfloat-abi=hard",
        level,
    )
    runner = ("qemu-system-arm", "-M", board, "-nographic", "-icount", "shift=0", "-semihosting-config")
    return Target(
        f"cortex-m{number} {level}", words, (*runner, "enable=on,target=native", "-kernel"), cortex=True
    )


TARGETS = (
    *(Target(f"x86-64 {cc} {o}", (cc, o)) for cc in ("gcc", "clang") for o in ("-O0", "-O2", "-O3")),
    *(
        Target(f"{name} gcc -O2", (f"{name}-linux-gnu-gcc", "-O2", "-static"), (f"qemu-{name}",))
        for name in ("aarch64", "riscv64")
    ),
    cortex_m(4, "fpv4-sp-d16", "mps2-an386"),
    cortex_m(7, "fpv5-sp-d16", "mps2-an500"),
    cortex_m(7, "fpv5-sp-d16", "mps2-an500", "-O3"),
)


def missing(target: Target) -> list[str]:
    return [words[0] for words in (target.compiler, target.runner) if words and not shutil.which(words[0])]


def outputs_of(target: Target, bundle: Path, folder: Path) -> tuple[str, int | None]:
    """The hash of the outputs on a target, and how many instructions a step has, if it can be counted."""
    sources = [CONTROLLER / "check.c", CONTROLLER / "sha256.c", bundle / "policy.c"]
    extra: list[str] = []
    if target.cortex:
        sources.append(CONTROLLER / "cortex_m.c")
        extra = ["-DCORTEX_M", "-ffunction-sections", "-Wl,--gc-sections", "--specs=rdimon.specs"]
        extra += ["-T", str(CONTROLLER / "mps2.ld")]
    program = folder / "check"
    words = [*target.compiler, *WARNINGS, *extra, f"-I{bundle}", f"-I{CONTROLLER}", *map(str, sources)]
    compiled = subprocess.run([*words, "-o", str(program)], capture_output=True, text=True)
    if compiled.returncode:
        raise SystemExit(f"{target.name} does not compile:\n{compiled.stderr}")
    run = subprocess.run(
        [*target.runner, str(program)],
        capture_output=True,
        text=True,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        timeout=LONGEST,
    )
    found = re.search(r"outputs ([0-9a-f]{64})", run.stdout)
    if found is None:
        raise SystemExit(f"{target.name} fails: {run.stdout[-500:]}{run.stderr[-500:]}")
    ticks = re.search(r"(\d+) clock ticks", run.stdout)
    return found[1], int(ticks[1]) * NANOSECONDS if ticks else None


def footprint(target: Target, bundle: Path, folder: Path) -> dict[str, int]:
    """Bytes of flash, RAM and stack that the policy takes on a Cortex-M, without the program around it."""
    flags = ("-std=c99", "-c", "-fstack-usage", "-ffreestanding", f"-I{bundle}", "-o", "policy.o")
    subprocess.run([*target.compiler, *flags, str(bundle / "policy.c")], check=True, cwd=folder)
    sizes = subprocess.run(
        ["arm-none-eabi-size", "policy.o"], check=True, cwd=folder, capture_output=True, text=True
    )
    text, data, bss = map(int, sizes.stdout.splitlines()[1].split()[:3])
    usage = [line.split("\t") for line in next(folder.glob("*.su")).read_text().splitlines()]
    frames = {place.rpartition(":")[2]: int(size) for place, size, _ in usage}
    depth = frames.pop("policy_run") + frames.pop("graph", 0) + max(frames.values(), default=0)
    names = ("policy_readings", "policy_results", "policy_state", "policy_work")
    source = '#include "policy.h"\n' + "".join(f"char size_{name}[sizeof({name})];\n" for name in names)
    (folder / "sizes.c").write_text(source)
    subprocess.run([*target.compiler, "-std=c99", "-c", f"-I{bundle}", "sizes.c"], check=True, cwd=folder)
    table = subprocess.run(
        ["arm-none-eabi-nm", "-S", "sizes.o"], check=True, cwd=folder, capture_output=True, text=True
    )
    memory = {line.split()[3]: int(line.split()[1], 16) for line in table.stdout.splitlines()}
    return {"flash": text + data, "ram": sum(memory.values()) + data + bss + depth, "stack": depth}


def check(policy: str, observations: int, folder: Path) -> dict:
    """Export a policy, and run it on all targets."""
    bundle = folder / policy
    manifest = export(policy, None, bundle, observations=observations, say=print)
    subprocess.run([sys.executable, CONTROLLER / "write_rows.py", bundle, folder / "rows.bin"], check=True)
    expected = manifest["c"].get("outputs_sha256")
    found: dict = {"observations": observations, "outputs": expected, "same": [], "skipped": []}
    for target in TARGETS:
        if absent := missing(target):
            print(f"{policy}: {target.name} skipped: {' and '.join(absent)} not installed", flush=True)
            found["skipped"].append(target.name)
            continue
        outputs, instructions = outputs_of(target, bundle, folder)
        expected = expected or outputs
        print(
            f"{policy}: {target.name} {'same bits' if outputs == expected else f'OTHER BITS {outputs}'}",
            flush=True,
        )
        if outputs != expected:
            raise SystemExit(1)
        found["same"].append(target.name)
        if target.cortex:
            found[target.name] = {**footprint(target, bundle, folder), "instructions": instructions}
            print(f"  {found[target.name]}", flush=True)
    return found


def report(found: dict) -> None:
    for policy, result in found.items():
        print(
            f"{policy}: the same bits on {len(result['same'])} targets, {len(result['skipped'])} skipped, "
            f"over {result['observations']} golden vectors"
        )
        for name, needs in result.items():
            if name.startswith("cortex"):
                print(
                    f"  {name}: flash {needs['flash'] / 1e3:.1f} kB, RAM {needs['ram'] / 1e3:.1f} kB, stack "
                    f"{needs['stack'] / 1e3:.1f} kB, {needs['instructions'] / 1e6:.2f} M instructions a step"
                )
    needs = found.get(PROVED, {}).get("cortex-m7 -O2")
    if needs:
        limits = f"{FLASH / 1e3:g} kB of flash and {RAM / 1e3:g} kB of RAM"
        reached = needs["flash"] <= FLASH and needs["ram"] <= RAM
        print(f"{PROVED} within {limits}: {'reached' if reached else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--observations", type=int)
    parser.add_argument("--policies", nargs="+", choices=SHIPPED, default=[])
    options = parser.parse_args()
    if options.kept:
        return report(json.loads(KEPT.read_text()))
    observations = options.observations or (1000 if options.measure else 100)
    kept = json.loads(KEPT.read_text())
    found = {}
    for policy in options.policies or (SHIPPED if options.measure else [PROVED]):
        with tempfile.TemporaryDirectory() as folder:
            found[policy] = check(policy, observations, Path(folder))
        if options.measure:  # one by one, so that an interrupted measurement keeps what it has
            kept[policy] = found[policy]
            write_atomically(KEPT, json.dumps(kept, indent=1, sort_keys=True) + "\n")
    report(found)


if __name__ == "__main__":
    main()
