"""Whether a compiled policy gives the outputs whose hash the manifest holds, before it drives a robot."""

from __future__ import annotations

from robopolicy.runtime.bundle import C_SOURCE, Bundle
from robopolicy.runtime.compiled import outputs_digest
from robopolicy.runtime.golden import read_golden
from robopolicy.runtime.manifest import BundleError
from robopolicy.runtime.policy import BundlePolicy

MOST_BYTES = 64 * 2**20  # of golden observations; to play more of them takes seconds


def prove(bundle: Bundle, policy: BundlePolicy) -> None:
    """Play the golden vectors by the compiled `policy`, and compare the hash of all outputs.

    Nothing is played if the manifest has no hash, or the observations have more than `MOST_BYTES`. Raises
    BundleError, in one line, for another hash, and ArithmeticError if an output is out of its limits.
    """
    manifest = bundle.manifest
    each = sum(value.size for value in manifest.inputs.values())
    if manifest.c_outputs is None or manifest.observations * each > MOST_BYTES:
        return
    replay = policy.replay()
    found = outputs_digest(manifest, (replay(observation) for observation, _ in read_golden(bundle)))
    policy.reset()
    if found != manifest.c_outputs:
        raise BundleError(
            f"{bundle.folder / C_SOURCE}: compiled here, it gives outputs of hash {found[:16]}..., and the "
            f"manifest has {manifest.c_outputs[:16]}...: do not run it; the runtime onnx needs no compiler"
        )
