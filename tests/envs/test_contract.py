"""The contract of a task: one battery over all tasks, and what is refused."""

import json
from pathlib import Path

import cv2
import gymnasium
import numpy as np
import pytest
import toy_arm
from gymnasium.spaces import Box, Dict
from installed_engines import each_engine
from toy_arm import Arm

from robopolicy.envs import registry
from robopolicy.envs.contract import REQUIRED
from robopolicy.envs.members import Camera, Curriculum, Mirror, Outcome, Quantity
from robopolicy.envs.task import check_ending, check_task, task_of
from robopolicy.experiments.default_policies import iap_config
from robopolicy.experiments.evaluation import evaluate
from robopolicy.experiments.films import film

RECORDED = json.loads(Path(__file__).with_name("descriptions.json").read_text())
NAMES = (*registry.TASKS, toy_arm.ID)
SMALL = {"bimanual-sweep": {"image_size": 64}}


@pytest.fixture(scope="module", params=NAMES)
def env(request):
    env = registry.make(request.param, **SMALL.get(request.param, {}))
    yield env
    env.close()


def test_its_members_agree_with_its_observations_and_actions(env):
    task = task_of(env)
    observation, info = env.reset(seed=0)
    assert observation.keys() == env.observation_space.spaces.keys()
    assert set(task.vectors) <= observation.keys()
    for player in task.players:
        assert env.action_space.contains(task.privileged_action(player))
    _, _, _, _, info = env.step(np.zeros(len(task.actions), np.float32))
    for outcome in task.outcomes:
        assert outcome.phrase.format(info[outcome.name])
        assert outcome.cell.format(float(info[outcome.name]))
    assert task.marks().shape[1:] == (3,)
    assert all(isinstance(line, str) for line in task.caption(np.zeros(len(task.actions), np.float32)))
    assert task.reference_images().keys() <= task.images().keys()


def test_its_description_has_every_number_and_image(env):
    task = task_of(env)
    description = json.loads(json.dumps(task.describe(), allow_nan=False))
    assert description["inputs"].keys() == env.observation_space.spaces.keys()
    for name, quantities in task.vectors.items():
        entries = description["inputs"][name]["entries"]
        assert len(entries) == len(quantities) == env.observation_space[name].shape[0]
    for name in task.images():
        assert description["inputs"][name]["low"] < description["inputs"][name]["high"]
    assert description["outputs"]["command"]["scale"] == [quantity.high for quantity in task.actions]
    assert description["control_period"] == pytest.approx(1 / task.rate)
    assert {"name", "safe_stop"} <= description["robot"].keys()


@each_engine
@pytest.mark.parametrize("name", registry.TASKS)
def test_manifests_have_not_changed(name, engine):
    env = registry.make(name, engine=engine, **SMALL.get(name, {}))
    description = task_of(env).describe()
    env.close()
    expected = RECORDED[f"{name} {engine}"]
    assert description.keys() == expected.keys()
    for part in description:
        if part == "inputs":  # a manifest has them in the policy's order
            assert {n: json.dumps(d) for n, d in description[part].items()} == {
                n: json.dumps(d) for n, d in expected[part].items()
            }
        else:
            assert json.dumps(description[part]) == json.dumps(expected[part]), part


@pytest.mark.parametrize("member", REQUIRED)
def test_a_task_that_lacks_a_member_is_refused_by_its_name(member):
    members = {name: value for name, value in vars(Arm).items() if name not in (member, "__dict__")}
    incomplete = type("Incomplete", Arm.__bases__, members)()
    with pytest.raises(ValueError, match=f"^environment 'mine' has no member '{member}': ") as refused:
        check_task(incomplete, "mine")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("rate", 0, "a number of actions a second above 0"),
        ("rate", "often", "a number of actions a second above 0"),
        ("actions", Arm.actions[:2], "it has 2 Quantities, and its space has 3 numbers"),
        ("rate", -10, "a number of actions a second above 0"),
        ("rate", float("nan"), "a number of actions a second above 0"),
        ("actions", ("x", "y", "z"), "it must be a tuple of Quantities"),
        ("actions", None, "it must be a tuple of Quantities"),
        ("actions", {*Arm.actions}, "it must be a tuple of Quantities"),
        ("actions", "xyz", "it must be a tuple of Quantities"),
        ("actions", Arm.actions[:1] * 3, "Quantities with different names"),
        ("actions", (Quantity("x", "m", -np.inf, np.inf),) * 3, "and finite limits"),
        ("actions", (Quantity("x", "m", 1.0, -1.0), *Arm.actions[:2]), "and finite limits, low first"),
        ("actions", (*Arm.actions[:2], Quantity("grip", "m", 0.0, 0.1)), "'grip' must have a high above 0"),
        ("actions", (Arm.actions[0]._replace(step=-0.1), *Arm.actions[1:]), "steps above 0 and"),
        ("vectors", {}, "it has no 'joints'"),
        ("vectors", {"joints": (Quantity("joint_0", "rad", -3.0, 3.0, step=0.0),)}, "steps above 0 and"),
        ("vectors", {**Arm.vectors, "force": ()}, "'force' is no vector"),
        ("vectors", {"joints": Arm.vectors["joints"][:1]}, "of 'joints', it has 1 Quantities"),
        ("vectors", None, "it must be tuples of Quantities"),
        ("vectors", ["joints"], "it must be tuples of Quantities"),
        ("vectors", {"joints": "xyz"}, "it must be tuples of Quantities"),
        ("observation_space", None, "it must be a Dict of Boxes"),
        ("observation_space", Dict(), "it must be a Dict of Boxes"),
        ("observation_space", Box(0, 1, (3,)), "it must be a Dict of Boxes"),
        ("observation_space", Dict({"left-eye": Box(0, 1, (3,))}), "'left-eye' must be letters"),
        ("observation_space", Dict({"joints": Box(0, 1, (3,), np.float64)}), "'joints' must be float32"),
        (
            "observation_space",
            Dict({"eye": Box(0, 1, (4, 4, 3))}),
            r"must be a colour image, uint8 \[H, W, 3\]",
        ),
        ("observation_space", Dict({"eye": Box(0, 255, (4, 4, 1), np.uint8)}), "must be a colour image"),
        (
            "observation_space",
            Dict({"eye": Box(0, 255, (4, 4), np.uint8)}),
            "'eye' must be float32, as depth",
        ),
        ("observation_space", Dict({"eye": Box(0, np.inf, (4, 4))}), "'eye' must have pixels, each with"),
        ("observation_space", Dict({"eye": Box(0, 0, (4, 4))}), "'eye' must have pixels, each with"),
        ("observation_space", Dict({"eye": Box(0, 1, (4, 0))}), "'eye' must have pixels, each with"),
        ("action_space", Box(0, 1, (3,)), r"it must be a Box of one axis in \[-1, 1\]"),
        ("action_space", None, r"it must be a Box of one axis in \[-1, 1\]"),
        ("action_space", Box(-1, 1, (3,), np.int8), "of floats"),
        ("outcomes", None, "it must be a tuple of Outcomes"),
        ("outcomes", ["off"], "it must be a tuple of Outcomes"),
        ("outcomes", {*Arm.outcomes}, "it must be a tuple of Outcomes"),
        ("outcomes", "off", "it must be a tuple of Outcomes"),
        ("outcomes", Arm.outcomes * 2, "each with its own name"),
        ("outcomes", (Outcome("return", "return", "{}", "{}"),), "not called return"),
        ("outcomes", (Outcome("off", "off", "{:d}", "{}"),), "that format a number"),
        ("outcomes", (Outcome("off", "off", "{:.2f} {}", "{}"),), "that format a number"),
        ("outcomes", (Outcome("off", "off", "{", "{}"),), "that format a number"),
        ("outcomes", (Outcome("off", "off", "{.off}", "{}"),), "that format a number"),
        ("outcomes", (Outcome("off", None, "{}", "{}"),), "that format a number"),
        ("cameras", None, "it must be Cameras"),
        ("cameras", {"camera": (0, 255)}, "it must be Cameras"),
        ("cameras", {"camera": Camera("1", 0, np.inf)}, "with finite limits"),
        ("cameras", {"camera": Camera("1", 0, 255, clip=(255, 0))}, "finite limits and clips, low first"),
        ("cameras", {"rear": Camera("1", 0, 255)}, "'rear' is no image of observation_space"),
        ("cameras", {"joints": Camera("1", 0, 255)}, "'joints' is no image of observation_space"),
        ("notes", None, "it must be notes"),
        ("notes", {"joints": {"clip": 5}}, "a clip of two numbers"),
        ("notes", {"joints": {"about": ""}}, "and text about it, by name"),
        (
            "feedback",
            ({"input": "joints", "output": "action", "first": 0},),
            "and `about`, the count",
        ),
        ("notes", {"joints": {"clip": (5.0, -5.0)}}, "a clip of two numbers, low first"),
        ("notes", {"force": {"about": "N"}}, "'force' is no vector of observation_space"),
        ("feedback", None, "it must be a tuple of objects"),
        ("feedback", {"input": "joints"}, "it must be a tuple of objects"),
        ("players", None, "it must be of type Mapping"),
        ("players", ("guide",), "it must be of type Mapping"),
        ("players", {"guide": "towards"}, "it must be of type Mapping"),
        ("presets", None, "it must be a tuple of different names"),
        ("presets", "easy", "it must be a tuple of different names"),
        ("presets", {"easy", "far"}, "it must be a tuple of different names"),
        ("presets", ("easy", "far", "easy"), "it must be a tuple of different names"),
        ("presets", (1, 2), "it must be a tuple of different names"),
        ("curriculum", ("easy", "far"), "it must be a Curriculum"),
        ("curriculum", Curriculum("easy", (), (1,)), "it must be a Curriculum"),
        ("curriculum", Curriculum(("easy",), None, (1,)), "it must be a Curriculum"),
        ("curriculum", Curriculum(("easy",), (), (0,)), "it must be a Curriculum"),
        ("curriculum", Curriculum(("easy",), (), 1), "it must be a Curriculum"),
        ("curriculum", Curriculum((), (), (1,)), "a Curriculum of presets that the task has"),
        ("policy_settings", None, "it must be of type Mapping"),
        ("policy_settings", "iap", "it must be of type Mapping"),
        ("demonstrator", "guide", "it must be of type Callable"),
        ("demo_settings", None, "it must be of type Mapping"),
        ("mirror", lambda images: images, "it must be of type Mirror"),
        ("mirror", Mirror(np.flip, None, np.flip), "it must be of type Mirror"),
        ("holds_last_action", "no", "it must be of type bool"),
        ("ticks", 0, "it must be a whole number of 1 or more"),
        ("ticks", 2.5, "it must be a whole number of 1 or more"),
        ("on_tick", 5, "it must be of type Callable"),
        ("halt", None, "it must be a method"),
        ("curriculum", Curriculum(("hard",), (), (1,)), "a Curriculum of presets that the task has"),
        ("curriculum", Curriculum(("easy", "far"), (), (1,)), "it needs advance_at for each preset"),
    ],
)
def test_a_wrong_member_is_refused_by_its_name(member, value, words):
    arm = Arm()
    setattr(arm, member, value)
    with pytest.raises(ValueError, match=f"^environment 'mine': {member} is .*{words}.*$") as refused:
        check_task(arm, "mine")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("member", ["control_period", "deadline"])
@pytest.mark.parametrize("value", [None, -0.1, np.inf, "often"])
def test_a_wrong_period_is_refused_by_its_name(member, value):
    task = type("Odd", (Arm,), {member: value})()
    with pytest.raises(ValueError, match=f"^environment 'Odd': {member} is .*a number of seconds above 0$"):
        check_task(task)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("rate", None),
        ("rate", property(lambda arm: 10)),
        ("outcomes", None),
        ("players", ["guide"]),
        ("presets", "easy"),
        ("mirror", 1),
    ],
)
def test_a_wrong_member_of_the_class_is_refused_before_an_environment_is_made(monkeypatch, member, value):
    monkeypatch.setattr(Arm, member, value)
    with pytest.raises(ValueError, match=f"^environment '{toy_arm.ID}': {member} is .*: it must be .*$"):
        registry.task_class(toy_arm.ID)


@pytest.mark.parametrize("action", [np.zeros(2, np.float32), None, [[0.0, 0.0, 0.0]]])
def test_a_player_whose_action_has_another_shape_is_refused_by_its_name(monkeypatch, action):
    monkeypatch.setattr(Arm, "players", {"guide": lambda task: action})
    with pytest.raises(ValueError, match=r"^environment 'Arm-v0': players has 'guide', .* must be \(3,\)$"):
        evaluate("guide", toy_arm.ID, [0])


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("success", "yes", "True or False"),
        ("success", 2, "True or False"),
        ("cause", None, "text"),
        ("off", "far", "a finite number"),
        ("off", float("nan"), "a finite number"),
    ],
)
def test_an_ending_of_another_type_is_refused_by_its_name(member, value, words):
    info = {"off": 0.1, "success": True, "cause": "time", member: value}
    with pytest.raises(ValueError, match=f"^environment 'Arm' has '{member}' as .*; it must be {words}$"):
        check_ending("Arm", Arm.outcomes, info)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("steping-stones", {}, "task is 'steping-stones': .* did you mean 'stepping-stones'"),
        ("Arms-v0", {}, "task is 'Arms-v0': it must be one of .*, module:Name-v0"),
        ("nowhere:Arm-v0", {}, "task is 'nowhere:Arm-v0': No module named 'nowhere'"),
        ("toy_arm:Leg-v0", {}, "task is 'toy_arm:Leg-v0': the module 'toy_arm' registers no environment"),
        ("toy_arm:Plain-v0", {}, "environment 'toy_arm:Plain-v0' has no member 'rate': how many actions"),
        ("toy_arm:Made-v0", {}, "environment 'toy_arm:Made-v0' has the entry point .*: it must be a class"),
        (toy_arm.ID, {"engine": "mujoco"}, "engine is 'mujoco': toy_arm:Arm-v0 takes no engine"),
        (toy_arm.ID, {"balls": 3}, "balls is 3: toy_arm:Arm-v0 takes no balls"),
    ],
)
def test_an_unknown_task_or_setting_is_refused_in_one_line(name, settings, words):
    with pytest.raises(ValueError, match=f"^{words}.*$"):
        registry.make(name, **settings)


def test_an_environment_that_is_refused_is_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(Arm, "close", lambda arm: closed.append(arm))
    monkeypatch.setattr(Arm, "actions", Arm.actions[:2])
    with pytest.raises(ValueError, match="it has 2 Quantities"):
        registry.make(toy_arm.ID)
    assert len(closed) == 1


def test_a_default_engine_of_a_task_stays(monkeypatch):
    for default, chosen in (None, registry.default_engine(None)), ("warp", None):
        monkeypatch.setattr(Arm, "__init__", lambda arm, engine=default: None)
        assert registry.with_defaults(toy_arm.ID)[0] == chosen


def test_a_third_task_has_its_id_or_a_short_name(monkeypatch):
    assert registry.with_defaults(toy_arm.ID) == (None, "easy")
    monkeypatch.setitem(registry.TASKS, "arm", toy_arm.ID)
    assert registry.task_class("arm") is Arm
    env = registry.make("arm", preset="far")
    assert task_of(env).preset == "far"


def test_a_third_task_is_evaluated_and_filmed(tmp_path):
    result = evaluate("guide", toy_arm.ID, range(3)).summary()
    assert (result["success_rate"], result["preset"], result["engine"]) == (1.0, "easy", None)
    assert result["off_mean"] < 0.01
    with pytest.raises(ValueError, match=r"^player is 'oracle': toy_arm:Arm-v0 has guide, blind, random$"):
        evaluate("oracle", toy_arm.ID, range(3))
    (episode,) = film(["random"], toy_arm.ID, tmp_path / "arm.mp4", size=(320, 240))
    assert episode["steps"] == 4
    assert (tmp_path / "arm.mp4").stat().st_size > 0


def test_slow_motion_of_colour_images_shows_every_tick(tmp_path, monkeypatch):
    def ticking(self, action, step=Arm.step):
        for _ in range(3 if self.on_tick else 0):
            self.on_tick()
        return step(self, action)

    monkeypatch.setattr(Arm, "ticks", 3)
    monkeypatch.setattr(Arm, "step", ticking)
    seconds = []
    for slow in (1, 2):
        film(["random"], toy_arm.ID, tmp_path / "arm.mp4", size=(320, 240), slow=slow)
        video = cv2.VideoCapture(str(tmp_path / "arm.mp4"))
        seconds.append(video.get(cv2.CAP_PROP_FRAME_COUNT) / video.get(cv2.CAP_PROP_FPS))
    assert seconds == pytest.approx([0.4, 0.8])


def test_a_module_that_fails_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken_task.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    said = "env is 'broken_task:Arm-v0': the import of broken_task fails with ZeroDivisionError: division"
    with pytest.raises(ValueError, match=f"^{said}"):
        registry.check_name("broken_task:Arm-v0", "env")


@pytest.mark.parametrize("missing", ["success", "cause", "off"])
def test_an_incomplete_ending_is_refused_by_the_missing_name(missing, monkeypatch):
    def without(self):
        info = {"off": 1.0, "success": True, "cause": "time"}
        return {name: value for name, value in info.items() if name != missing}

    monkeypatch.setattr(Arm, "_info", without)
    with pytest.raises(ValueError, match=f"^environment 'Arm-v0' has no {missing!r} in the info of an "):
        evaluate("random", toy_arm.ID, [0])


def test_a_return_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setattr(Arm, "_off", lambda self: float("nan"))
    with pytest.raises(ValueError, match=r"^environment 'toy_arm:Arm-v0 .*': the return of seed 0 is nan: "):
        evaluate("random", toy_arm.ID, [0])


def test_a_policy_of_images_refuses_a_task_whose_arrays_are_no_images(monkeypatch):
    space = Dict({"joints": Arm.observation_space["joints"], "eye": Box(0.1, 1, (4, 4))})
    monkeypatch.setattr(Arm, "observation_space", space)
    words = r"^attention is 'softmax': .* has no image that it reads, .* but 'eye' float32\[4, 4\]$"
    with pytest.raises(ValueError, match=words):
        iap_config("softmax", Arm())
    assert not iap_config("none", Arm()).cameras


def test_the_camera_of_a_task_limits_an_image_whose_space_is_infinite():
    arm = Arm()
    arm.observation_space = Dict({**arm.observation_space.spaces, "eye": Box(0, np.inf, (4, 4))})
    arm.cameras = {"eye": Camera("m", 0.0, 3.0)}
    check_task(arm)
    assert arm.describe()["inputs"]["eye"]["high"] == 3.0


def test_numbers_of_a_task_may_be_those_of_numpy():
    arm, one = Arm(), np.float32(1.0)
    arm.rate, arm.cameras = np.float32(10.0), {"camera": Camera("1", 0, 255, clip=(0 * one, one))}
    arm.actions = tuple(quantity._replace(step=one) for quantity in Arm.actions)
    arm.notes = {"joints": {"clip": (-one, one)}}
    check_task(arm)
    described = json.loads(json.dumps(arm.describe()))
    assert (described["control_period"], described["deadline"]) == (0.1, 0.1)
    assert described["inputs"]["camera"]["clip"] == [0.0, 1.0]
    assert described["inputs"]["joints"]["clip"] == [-1.0, 1.0]
    assert [entry["step"] for entry in described["outputs"]["command"]["entries"]] == [1.0] * 3


def test_a_wrapped_environment_is_refused():
    with pytest.raises(ValueError, match="is wrapped"):
        check_task(gymnasium.make(toy_arm.ID))
