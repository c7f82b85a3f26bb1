"""Evolution strategies on a Ray cluster: the pool of workers is another one, and nothing else is.

    python examples/es_on_a_cluster.py [ADDRESS]

ADDRESS is "auto" or host:port of a cluster that runs (ray start --head on one machine, ray start --address on
the others, pip install '.[all,ray]' in a checkout on all); without it one is started here. As a command:
robopolicy train es --evaluator ray --address ADDRESS --out runs/mine

Expected: "generation 1" and "generation 2" with their mean returns, and "2 Ray workers played 16 episodes".
"""

import argparse
import tempfile
from pathlib import Path

import gymnasium
import jax

from robopolicy.bundles.onnx import worker_graph
from robopolicy.control.proprioception import PROPRIOCEPTION
from robopolicy.policies.base import flatten
from robopolicy.policies.catalogue import by_path
from robopolicy.policies.iap import iap
from robopolicy.policies.quadruped import quadruped
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.es import ESConfig, train
from robopolicy.training.ray_pool import RayPool
from robopolicy.training.worker import EnvironmentSpec

STONES, SETTINGS = "robopolicy:robopolicy/SteppingStones-v0", {"preset": "painted", "episode_seconds": 1.0}


def told(record: dict) -> None:
    if record["generation"]:
        print(f"generation {record['generation']}: mean return {record['return_mean']:.2f}")


def main(address: str | None) -> None:
    env = gymnasium.make(STONES, **SETTINGS)
    config = quadruped("angular_hybrid(m=8, n=8)", PROPRIOCEPTION, patch=4)
    policy = iap(config, env.unwrapped.reference_images())
    env.close()
    start, draw = jax.random.split(jax.random.key(0))
    features, played = policy.init_features(draw), []
    spec = EnvironmentSpec(STONES, SETTINGS, "painted")
    workers = RayPool([spec], worker_graph(config, features), workers=2, address=address)
    given = {"initial": flatten(policy.init(start)), "features": by_path(features), "evaluator": workers}
    with tempfile.TemporaryDirectory() as scratch:
        (run := RunFolder(Path(scratch))).create({})
        search = ESConfig(generations=2, population=8, held_out=1)
        train(search, run=run, on_episode=lambda: played.append(1), on_generation=told, **given)
    print(f"{workers.workers} Ray workers played {len(played)} episodes")
    workers.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="?")
    main(parser.parse_args().address)
