"""Thousands of damaged or forged bundles, seeded: each is refused in one line or does no harm."""

import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from test_bundle import FILES, refused, use
from toy_bundle import manifest, resum, seal


def mutated(content, rng):
    """`content` with a part changed, removed, inserted, doubled or cut off."""
    content = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 4))):
        at = rng.randrange(len(content) + 1)
        change, size = rng.randrange(5), rng.choice((1, 1, 2, 8, 64))
        if change == 0 and at < len(content):
            content[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            del content[at : at + size]
        elif change == 2:
            content[at:at] = rng.randbytes(size)
        elif change == 3:
            content[at:at] = content[at : at + size]
        else:
            del content[at:]
    return bytes(content)


@pytest.mark.slow
def test_ten_thousand_damaged_bundles_are_refused(bundle):
    rng = random.Random(0)
    valid = {name: (bundle / name).read_bytes() for name in FILES}
    for number in range(10_000):
        name = FILES[number % len(FILES)]
        content = mutated(valid[name], rng)
        (bundle / name).write_bytes(content)
        if content == valid[name]:
            continue
        refused(bundle)
        (bundle / name).write_bytes(valid[name])


VALUES = (0, -1, 2**70, 1e308, "", "x" * 300, "\x1b[2J", None, True, [], {}, [[]], {"low": 0})


def forged(tree, rng):
    """`tree` with one value, at any depth, replaced or removed."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.15:
        return rng.choice(VALUES)
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    key = rng.choice(list(keys))
    changed = dict(tree) if isinstance(tree, dict) else list(tree)
    if rng.random() < 0.1:
        del changed[key]
    else:
        changed[key] = forged(tree[key], rng)
    return changed


def accepted(folder):
    """Whether a forged bundle loads and acts. An error must be one printable line."""
    try:
        use(folder)
    except (ValueError, ArithmeticError) as error:  # a forged observation may be refused, too
        if not str(error).isprintable():
            raise
        return False
    return True


@pytest.mark.parametrize("depth", [100, 900, 970, 985, 995])
def test_a_deeply_nested_manifest_is_used_or_refused(bundle, depth):
    text = (bundle / "manifest.json").read_text()
    deep = text.replace('"unit": "m",', '"unit": "m", "more": ' + "[" * depth + "]" * depth + ",", 1)
    (bundle / "manifest.json").write_text(deep)
    resum(bundle)
    assert accepted(bundle) or depth > 800


@pytest.mark.slow
def test_thousands_of_forged_manifests_do_no_harm(bundle):
    """The checksums match the forged content."""
    rng = random.Random(1)
    manifest = json.loads((bundle / "manifest.json").read_text())
    used = 0
    for _ in range(3000):
        (bundle / "manifest.json").write_text(json.dumps(forged(manifest, rng)))
        resum(bundle)
        used += accepted(bundle)
    assert 0 < used < 1500


@pytest.mark.slow
def test_thousands_of_forged_golden_vectors_do_no_harm(bundle):
    """The forged arrays are in a valid archive."""
    rng = random.Random(2)
    with zipfile.ZipFile(bundle / "golden.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    used = 0
    for _ in range(2000):
        name = rng.choice(list(members))
        content = members[name]
        part = rng.choice((128, len(content)))  # 128 bytes are the header
        content = mutated(content[:part], rng) + content[part:]
        with zipfile.ZipFile(bundle / "golden.npz", "w") as archive:
            for member, valid in members.items():
                archive.writestr(member, content if member == name else valid)
        seal(bundle, manifest())
        used += accepted(bundle)
    assert 0 < used < 1500


FORGED_GRAPHS = """
import random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from toy_bundle import graph, manifest, seal
from test_bundle import use
from test_forged_bundles import mutated
rng, folder = random.Random(2), Path(sys.argv[1])
for number in range(300):
    (folder / "policy.onnx").write_bytes(mutated(graph(), rng))
    seal(folder, manifest())
    try:
        use(folder)
    except (ValueError, ArithmeticError) as error:
        assert len(str(error).splitlines()) == 1, error
print("done")
"""


@pytest.mark.slow
def test_forged_graphs_do_not_crash_the_process(bundle):
    """It runs in a process of its own, since onnxruntime is not written in Python."""
    command = [sys.executable, "-c", FORGED_GRAPHS, str(bundle), str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.stdout.endswith("done\n"), run.stderr[-2000:]
