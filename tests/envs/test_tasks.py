"""One battery over the tasks, on each engine: what gymnasium and its users count on."""

import copy
import json
import pickle
import subprocess
import sys
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from gymnasium.utils.env_checker import check_env
from installed_engines import EACH_ENGINE, EACH_OF_QUADRUPEDS, needs_bullet
from toy_arm import Arm

from robopolicy.envs.images import DepthImages
from robopolicy.envs.physics import ARM_ENGINES, ENGINES


class Task(NamedTuple):
    """gymnasium's id, settings by engine, and steps in a tenth of a second."""

    id: str
    settings: dict[str, dict[str, Any]]
    steps: int

    def make(self, engine: str, **more: Any) -> gymnasium.Env:
        """The environment without gymnasium's wrappers."""
        return gymnasium.make(self.id, engine=engine, **self.settings[engine], **more).unwrapped


HARD = {"preset": "hard"}
SMALL = {"preset": "state", "image_size": 64}
TASKS = {
    "stepping-stones": Task("robopolicy:robopolicy/SteppingStones-v0", dict.fromkeys(ENGINES, HARD), 2),
    "bimanual-sweep": Task("robopolicy:robopolicy/BimanualSweep-v0", dict.fromkeys(ARM_ENGINES, SMALL), 1),
}

DIGEST = """
import hashlib, json, sys
import gymnasium, numpy as np
env = gymnasium.make(sys.argv[1], **json.loads(sys.argv[2]))
for seed in map(int, sys.argv[3:]):
    observation, _ = env.reset(seed=seed)
    rng, shape = np.random.default_rng(seed), env.action_space.shape
    text, over = b"", False
    while not over:
        for name in sorted(observation):
            text += observation[name].tobytes()
        action = env.unwrapped.oracle_action() if seed % 2 else rng.uniform(-1, 1, shape).astype(np.float32)
        observation, reward, ended, cut, _ = env.step(action)
        text += np.float64(reward).tobytes()
        over = ended or cut
    print(seed, hashlib.sha256(text).hexdigest())
"""

IN_PROCESSES = """
import json, sys
import gymnasium

name, settings, fork = sys.argv[1], json.loads(sys.argv[2]), {"context": "fork"}

def pictures(start):
    together = gymnasium.make_vec(name, 2, "async", start, **settings)
    try:
        together.reset(seed=[0, 1])
        return len(together.render())
    except RuntimeError as error:
        return error
    finally:
        together.close()

print(pictures(fork))
env = gymnasium.make(name, **settings)
env.reset(seed=0)
env.render()
print(pictures(fork))
print(pictures({"context": "spawn"}))
"""

CASES = [
    pytest.param((TASKS[name], *engine.values), marks=engine.marks, id=f"{name}-{engine.values[0]}")
    for name, engines in (("stepping-stones", EACH_OF_QUADRUPEDS), ("bimanual-sweep", EACH_ENGINE))
    for engine in engines
]
each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
each_case = pytest.mark.parametrize("case", CASES)


@pytest.fixture(scope="module", params=CASES)
def env(request):
    task, engine = request.param
    env = task.make(engine)
    yield env
    env.close()


def still(env: gymnasium.Env) -> np.ndarray:
    return np.zeros(env.action_space.shape, np.float32)


@pytest.mark.filterwarnings("error")
@each_case
def test_gymnasiums_checker_accepts_the_tasks(case):
    task, engine = case
    env = task.make(engine, render_mode="rgb_array", render_size=(160, 120))
    check_env(env)
    env.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "settings", "wrapper"),
    [
        pytest.param("stepping-stones", {"engine": "bullet"}, DepthImages, marks=needs_bullet),
        ("stepping-stones", {"engine": "mujoco"}, DepthImages),
        ("bimanual-sweep", {"image_size": 64}, gymnasium.Wrapper),
    ],
)
def test_stable_baselines_checker_accepts_the_tasks(name, settings, wrapper):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    env = wrapper(gymnasium.make(TASKS[name].id, **settings))
    checker.check_env(env)
    env.close()


def test_depth_images_become_grey_ones_with_a_channel_axis():
    env = TASKS["stepping-stones"].make("mujoco")
    grey = DepthImages(env)
    depth, _ = env.reset(seed=0)
    images, _ = grey.reset(seed=0)
    assert grey.observation_space.contains(images)
    for name in ("front_depth", "belly_depth"):
        assert images[name].shape == (48, 64, 1)
        assert images[name].dtype == np.uint8
        for row, column in np.ndindex(2, 2):
            metres = images[name][row::2, column::2, 0] * (2.0 / 255)
            np.testing.assert_allclose(metres, depth[name], atol=1.0 / 255 + 1e-6)
    np.testing.assert_array_equal(images["proprioception"], depth["proprioception"])
    env.close()


def test_an_environment_without_depth_images_is_refused_by_their_wrapper():
    env = TASKS["bimanual-sweep"].make("mujoco")
    with pytest.raises(ValueError, match=r"^env observes balls, image, poses: .* depth images .*$"):
        DepthImages(env)
    env.close()


@pytest.mark.parametrize("reach", [np.inf, 0.0])
def test_depth_images_without_a_reach_are_refused_by_their_wrapper(monkeypatch, reach):
    monkeypatch.setattr(Arm, "observation_space", Dict({"eye": Box(0.0, reach, (4, 4))}))
    with pytest.raises(ValueError, match=r"^env observes 'eye' as Box.*: it must have pixels, each with"):
        DepthImages(Arm())


@pytest.mark.slow
@each_case
def test_two_processes_and_any_order_of_episodes_give_the_same_bits(case):
    task, engine = case
    settings = {"engine": engine, "episode_seconds": 3.0, **task.settings[engine]}

    def digests(*seeds: int) -> dict[str, str]:
        run = [sys.executable, "-c", DIGEST, task.id, json.dumps(settings), *map(str, seeds)]
        lines = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
        return {digest: seed for seed, digest in map(str.split, lines)}

    forwards = digests(1, 2, 3)
    assert len(forwards) == 3
    assert forwards == digests(3, 1, 2)


@each_case
def test_pictures_show_something_and_have_the_requested_size(case):
    task, engine = case
    env = task.make(engine, render_mode="rgb_array", render_size=(160, 90))
    env.reset(seed=0)
    picture = env.render()
    env.close()
    assert picture.shape == (90, 160, 3)
    assert picture.std() > 10


@pytest.mark.slow
@each_task
def test_mujoco_draws_in_other_processes_unless_they_are_forked_from_one_that_drew(task):
    settings = {**task.settings["mujoco"], "engine": "mujoco", "renderer": "opengl"}
    settings |= {"render_mode": "rgb_array", "render_size": (160, 90)}
    words = [sys.executable, "-c", IN_PROCESSES, task.id, json.dumps(settings)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if "MuJoCo cannot draw here" in run.stdout + run.stderr:
        pytest.skip("there is no OpenGL")
    assert run.returncode == 0, run.stderr
    before, forked, spawned = run.stdout.splitlines()
    assert (before, spawned) == ("2", "2")
    assert forked.startswith("MuJoCo cannot draw in a process that was forked")
    assert 'vector_kwargs={"context": "spawn"}' in forked


def test_without_a_render_mode_there_is_no_picture(env):
    env.reset(seed=0)
    assert env.render() is None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda action: np.where(np.arange(action.size) == 1, np.nan, action), "nan"),
        (lambda action: np.where(np.arange(action.size) == 1, np.inf, action), "inf"),
        (lambda action: np.where(np.arange(action.size) == 1, 1.5, action), r"\[-1, 1\]"),
        (lambda action: action[:3], r"\(3,\)"),
        (lambda action: action.astype(str), "dtype"),
        (lambda action: [[1], [1, 2]], "floats: "),
    ],
    ids=["nan", "inf", "large", "short", "text", "ragged"],
)
def test_a_bad_action_is_refused_by_name_and_the_episode_goes_on(env, spoil, words):
    env.reset(seed=0)
    with pytest.raises(ValueError, match=f"^action .*{words}.*$"):
        env.step(spoil(still(env)))
    env.step(still(env))


@each_case
def test_stepping_outside_an_episode_is_refused(case):
    task, engine = case
    env = task.make(engine, episode_seconds=0.1)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(still(env))
    env.reset(seed=0)
    assert [env.step(still(env))[3] for _ in range(task.steps)] == [False] * (task.steps - 1) + [True]
    with pytest.raises(RuntimeError, match="reset"):
        env.step(still(env))
    env.reset(seed=0)
    env.step(still(env))
    env.close()
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.reset(seed=0)


@pytest.mark.filterwarnings("ignore:.*render_mode='rgb_aray'")  # gymnasium warns before the task refuses
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "bulet"}, "engine is 'bulet'.*did you mean 'bullet'"),
        ({"preset": "papr"}, "preset is 'papr'.*did you mean 'paper'"),
        ({"episode_seconds": 0.0}, "episode_seconds is 0.0"),
        ({"episode_seconds": float("nan")}, "episode_seconds is nan"),
        ({"episode_seconds": "long"}, "episode_seconds is 'long'"),
        ({"render_mode": "rgb_aray"}, "render_mode is 'rgb_aray'.*did you mean 'rgb_array'"),
        ({"render_size": (0, 5)}, r"render_size is \(0, 5\)"),
        ({"render_size": (5,)}, r"render_size is \(5,\)"),
        ({"render_size": (1.5, 5)}, r"render_size is \(1\.5, 5\)"),
        ({"render_size": 500}, "render_size is 500"),
        ({"render_size": (True, 5)}, r"render_size is \(True, 5\)"),
        ({"config": {}}, r"\w+ config is {}: it must be of type \w+Config"),
    ],
)
@each_task
def test_bad_settings_are_refused_by_name(task, settings, words):
    with pytest.raises(ValueError, match=f"^{words}.*$"):
        gymnasium.make(task.id, **settings)


@each_task
def test_what_needs_a_reset_says_so(task):
    env = task.make("mujoco", render_mode="rgb_array")
    calls = ["render", "shapes", "scene", "poses", "oracle_action"]
    for name in [*calls, *(["view", "marks"] if "Stones" in task.id else ["halt"])]:
        with pytest.raises(RuntimeError, match=r"^\w+ called before reset"):
            getattr(env, name)()
    env.close()
    env = task.make("mujoco")
    assert env.render() is None
    env.close()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"]
)
@each_case
def test_a_copy_has_a_world_of_its_own_or_is_refused(case, copied):
    task, engine = case
    env = task.make(engine)
    env.reset(seed=0)
    if engine == "bullet":
        with pytest.raises(TypeError, match=r"^an environment on bullet cannot be copied or pickled: make"):
            copied(env)
    else:
        other = copied(env)
        played = [env.step(env.oracle_action())[0] for _ in range(3)]
        for expected in played:
            seen = other.step(other.oracle_action())[0]
            for name, array in expected.items():
                np.testing.assert_array_equal(seen[name], array)
        other.close()
    env.step(still(env))
    env.close()


def test_shapes_follow_the_world(env):
    env.reset(seed=3)
    before = env.shapes()
    for _ in range(4):
        env.step(env.oracle_action())
    after = env.shapes()
    assert before.keys() == after.keys()
    for name, shape in after.items():
        assert all(np.isfinite(part).all() for part in shape)
        moved = any(not np.array_equal(*parts) for parts in zip(before[name], shape, strict=True))
        assert moved == (name not in ("stones", "table", "bowls")) or name in ("balls", "footholds")
