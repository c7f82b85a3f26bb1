"""Damage to files and to command lines, one thing at a time, by a random generator that is given."""

import json
import math
import os
import shutil

ODD_NUMBERS = (0, -1, 1, True, 0.5, -0.5, 2**31, 10**9, 10**30, 10**400, 1e308, math.nan, math.inf, -math.inf)
ODD_TEXTS = (
    *("", " ", "x", "x" * 100_000, "{leg:>4000000000}", "{0.__class__}", "{}", "%s%n", "[/b]", ":star:"),
    *("\x1b[2J", "a\nb", "../..", "/dev/null", "positive(m=0)", "ß漢\u202e", "\ud800", "nan", "1e999", "²"),
)
DEEP = json.loads("[" * 200 + "]" * 200)
ODD_VALUES = (*ODD_NUMBERS, *ODD_TEXTS, None, [], {}, [[]], [None], {"a": {}}, [1] * 10_000, DEEP)
ODD_LINES = ("\n", "{\n", "junk\n", "[]\n", "NaN\n", '{"generation": 1}\n', '{"generation": -1}\n')
ODD_WORDS = (
    *ODD_TEXTS,
    *("0", "-1", "1.5", "inf", "1" * 400, "--json", "--help", "--nonsense", "-", "--", "@best", "no folder"),
)
# Options that may ask for hours of work, which stay as they are.
LONG = ("--episodes", "--episode-seconds", "--calls", "--out", "--resume", "--resume-from", "--generations")


def changed_tree(tree, rng):
    """JSON with one value, at any depth, taken away, moved, or made another one."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.05:
        return _changed_value(tree, rng)
    changed = dict(tree) if isinstance(tree, dict) else list(tree)
    key = rng.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    what = rng.random()
    if what < 0.1:
        del changed[key]
    elif what < 0.15 and isinstance(tree, dict):
        changed[rng.choice(ODD_TEXTS)] = changed.pop(key)
    elif what < 0.25 and isinstance(tree, list):
        return rng.choice((tree[::-1], [*tree, tree[key]], tree * 100))
    else:
        changed[key] = changed_tree(tree[key], rng)
    return changed


def _changed_value(value, rng):
    if isinstance(value, int | float) and rng.random() < 0.5:
        return rng.choice((-value, value + 1, value * 10, value / 2, str(value), [value]))
    return rng.choice(ODD_VALUES)


def changed_bytes(content, rng):
    """Content with a part of it changed, cut out, doubled, made up, or in another encoding."""
    at, size = rng.randrange(len(content) + 1), rng.choice((1, 1, 8, 64))
    before, after, made = content[:at], content[at + size :], rng.randbytes(size)
    whole = (b"", content * 2, made * 4, b"\xef\xbb\xbf" + content, b"[" * 100_000)
    recoded = content.decode("latin-1").encode("utf-16")
    return rng.choice((*whole, recoded, before, before + after, before + made, before + made + after))


def changed_lines(text, rng):
    """A log with one of its lines changed, moved, doubled, cut off or made up."""
    lines = text.splitlines(keepends=True)
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    what = rng.randrange(6)
    if what <= 2:
        lines[at] = json.dumps(changed_tree(json.loads(lines[at]), rng)) + "\n"
    elif what == 3:
        lines[at], lines[other] = lines[other], lines[at]
    elif what == 4:
        lines.insert(at, rng.choice((lines[at], *ODD_LINES)))
    else:
        lines[-1] = lines[-1][: rng.randrange(len(lines[-1]))]
    return "".join(lines)


def _changed_place(path, rng):
    """Take a file or a folder away, or put something else in its place."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    instead = rng.randrange(4)
    if instead == 1:
        path.mkdir()
    elif instead > 1:
        path.symlink_to("nowhere" if instead == 2 else path)


def _changed_checkpoints(checkpoints, rng):
    """Number the last checkpoint otherwise, change what it says of its arrays, or put something beside it."""
    last = max(checkpoints.iterdir(), key=lambda path: int(path.name))
    other = checkpoints / rng.choice(("0", "7", "007", "99", "²", "-1", "last", "9" * 30))
    index = last / "index" / "metadata"
    what = rng.randrange(4)
    if what == 0:
        os.replace(last, other)
    elif what == 1:
        other.mkdir(exist_ok=True)
    elif what == 2:
        index.write_text(json.dumps(changed_tree(json.loads(index.read_text()), rng)))
    else:
        shutil.rmtree(last)


def changed_folder(folder, rng):
    """Damage one thing in a run, a bundle or a dataset; returns where, for the report of a failure."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    texts = [path for path in files if path.suffix in (".json", ".jsonl")]
    what = rng.random()
    if what < 0.5:
        path = rng.choice([p for p in texts if p.suffix == ".json"])
        path.write_text(json.dumps(changed_tree(json.loads(path.read_text()), rng)))
    elif what < 0.65 and (folder / "metrics.jsonl").is_file():
        path = folder / "metrics.jsonl"
        path.write_text(changed_lines(path.read_text(), rng))
    elif what < 0.75 and (folder / "checkpoints").is_dir():
        path = folder / "checkpoints"
        _changed_checkpoints(path, rng)
    elif what < 0.92:
        path = rng.choice(rng.choice((texts, files)))
        path.write_bytes(changed_bytes(path.read_bytes(), rng))
    else:
        path = rng.choice(sorted(folder.rglob("*")))
        _changed_place(path, rng)
    return str(path.relative_to(folder))


def changed_words(words, rng):
    """A command line with one of its words taken away, doubled, moved, or made another one."""
    words = list(words)
    free = [n for n in range(1, len(words)) if not {words[n - 1], words[n]} & set(LONG)]
    at, other = rng.choice(free), rng.choice(free)
    what = rng.random()
    if what < 0.15:
        del words[at]
    elif what < 0.3:
        words.insert(other, words[at])
    elif what < 0.4:
        words[at], words[other] = words[other], words[at]
    elif what < 0.5:
        words.insert(at, rng.choice(ODD_WORDS))
    else:
        words[at] = rng.choice(ODD_WORDS)
    return words


def contents(folder):
    """What every path in a folder holds: bytes of a file, the aim of a link, None for a folder."""
    return {
        path: path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }
