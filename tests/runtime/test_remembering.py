"""A policy with a state on a robot: what keeps it, what resets it, and what it refuses."""

import json
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_bundle import refused
from test_driving import next_message, serving
from toy_bundle import ROWS, ToyRobot, entries, graph, make_bundle, manifest, observations, seal

from robopolicy.runtime import BundlePolicy
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.graph import NEXT, STARTS
from robopolicy.runtime.process import policy_process
from robopolicy.runtime.protocol import Kind, encode, pack, stop
from robopolicy.runtime.robot import Driver
from robopolicy.runtime.serve import SILENCE

STATE = "state_total"
FEEDBACK = [{"input": STATE, "output": NEXT + STATE, "start": 0.5}]
IMAGE = observations()["image"][0]
STEP = 1.0  # rad that `felt` may go in a period


def remembering(times=1.0, width=2, start=0.5, after=2):
    """The toy graph, whose scores are its state: the sum of all that was felt, times `times`."""
    model = onnx.load_from_string(graph())
    body = model.graph
    del body.node[-1]
    body.initializer.append(helper.make_tensor("times", TensorProto.FLOAT, [], [times]))
    body.node.extend(
        [
            helper.make_node("Mul", ["felt", "times"], ["more"]),
            helper.make_node("Add", [STATE, "more"], [NEXT + STATE]),
            helper.make_node("Identity", [NEXT + STATE], ["scores"]),
        ]
    )
    body.input.append(helper.make_tensor_value_info(STATE, TensorProto.FLOAT, [width]))
    body.output.append(helper.make_tensor_value_info(NEXT + STATE, TensorProto.FLOAT, [after]))
    helper.set_model_props(model, {STARTS: json.dumps({STATE: start})})
    return model.SerializeToString()


@pytest.fixture
def bundle(tmp_path):
    return bundle_of(tmp_path, remembering())


def bundle_of(tmp_path, content):
    felt = {"shape": [2], "dtype": "float32", "entries": [{**e, "step": STEP} for e in entries("rad", 3.0)]}
    inputs = {**manifest()["inputs"], "felt": felt}
    golden = {"observations": ROWS, "begins": list(range(ROWS))}  # rows that do not follow each other
    folder = make_bundle(tmp_path / "bundle")
    (folder / "policy.onnx").write_bytes(content)
    seal(folder, {**manifest(), "inputs": inputs, "feedback": FEEDBACK, "golden": golden})
    return folder


def feeling(*numbers):
    return {"image": IMAGE, "felt": np.array(numbers, np.float32)}


def test_a_state_goes_from_step_to_step_until_a_reset(bundle):
    policy = BundlePolicy.load(bundle)
    for _ in range(2):
        for count in (1, 2, 3):
            scores = policy.run(feeling(0.25, -0.5))["scores"]
            np.testing.assert_allclose(scores, [0.5 + 0.25 * count, 0.5 - 0.5 * count])
        policy.reset()


def test_a_refused_observation_leaves_the_state_as_it_is(bundle):
    policy = BundlePolicy.load(bundle)
    policy.run(feeling(0.25, 0.0))
    with pytest.raises(ValueError, match=r"^felt 'right' jumped by 1.5 rad: a step may go 1 at most$"):
        policy.run(feeling(0.25, 1.5))
    np.testing.assert_allclose(policy.run(feeling(0.25, 0.5))["scores"], [1.0, 1.0])
    policy.reset()
    policy.run(seen := feeling(0.25, 1.5))  # an episode may begin anywhere
    seen["felt"][1] = 0.0  # readings may come in the same memory
    with pytest.raises(ValueError, match=r"^felt 'right' jumped by 1.5 rad"):
        policy.run(seen)


def test_a_result_beyond_its_limits_leaves_the_state_as_it_is(bundle):
    described = json.loads((bundle / "manifest.json").read_text())
    described["outputs"]["scores"] |= {"low": -1.0, "high": 1.0}
    seal(bundle, described)
    policy = BundlePolicy.load(bundle)
    for _ in range(2):
        with pytest.raises(ArithmeticError, match=r"^the policy failed: scores \[0\] is 1.25: it must be"):
            policy.run(feeling(0.75, 0.0))
    np.testing.assert_allclose(policy.run(feeling(0.25, 0.0))["scores"], [0.75, 0.5])


def test_a_state_that_is_not_finite_is_refused_by_name(tmp_path):
    policy = BundlePolicy.load(bundle_of(tmp_path, remembering(times=np.inf)))
    with pytest.raises(ArithmeticError, match=f"^the policy failed: {STATE} would hold a number that is not"):
        policy.run(feeling(1.0, 0.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (remembering(width=1), f"the graph has a state '{STATE}': it must be an input and the output"),
        (remembering(width="n", after="n"), "float32 of the same fixed shape"),
        (remembering(start=0.0), f"its state begins with {{'{STATE}': 0.0}}, the manifest's with"),
        (graph(), f"its state begins with {{}}, the manifest's with {{'{STATE}': 0.5}}"),
    ],
    ids=["another shape", "no fixed shape", "another start", "none"],
)
def test_a_graph_with_another_state_is_refused(tmp_path, content, message):
    assert message in refused(bundle_of(tmp_path, content))


def shown(model):
    """The graph with the state as its action, so that a robot sees it."""
    model = onnx.load_from_string(model)
    model.graph.node[4].input[0] = NEXT + STATE
    nodes = list(model.graph.node)
    order = [*nodes[:4], *nodes[6:], *nodes[4:6]]
    del model.graph.node[:]
    model.graph.node.extend(order)
    return model.SerializeToString()


def test_serve_keeps_the_state_over_a_held_step_and_begins_anew_when_told(tmp_path):
    bundle = bundle_of(tmp_path, shown(remembering(times=0.1)))
    values = open_bundle(bundle).manifest.inputs

    def observed(number, *felt):
        return encode(Kind.OBSERVATION, number, 0, pack(values, feeling(*felt)))

    commands = {}

    def robot(sock):
        for number in (1, 2, 3):  # the robot has held step 2, and takes no notice of its command
            sock.sendall(observed(number, 1.0, -1.0))
            commands[number] = next_message(sock, Kind.COMMAND).payload
        sock.sendall(encode(Kind.BEGIN) + observed(4, -1.0, 1.0))
        commands[4] = next_message(sock, Kind.COMMAND).payload
        sock.sendall(stop("done"))

    assert serving(bundle, robot) == 4
    found = {number: np.frombuffer(command, "<f4") for number, command in commands.items()}
    np.testing.assert_allclose(found[3], [0.3 * 0.8, 0.3 * 0.2], rtol=1e-5)
    np.testing.assert_allclose(found[4], [0.3 * 0.4, 0.3 * 0.6], rtol=1e-5)


def test_a_jump_makes_the_policy_send_its_reason(bundle):
    values = open_bundle(bundle).manifest.inputs

    def robot(sock):
        for number, felt in ((1, 0.0), (2, 1.25)):
            sock.sendall(encode(Kind.OBSERVATION, number, 0, pack(values, feeling(felt, 0.0))))
            if number == 1:
                next_message(sock, Kind.COMMAND)
        assert "felt 'left' jumped by 1.25 rad" in next_message(sock, Kind.STOP).reason

    assert "felt 'left' jumped by 1.25 rad: a step may go 1 at most" in str(serving(bundle, robot))


class Walker(ToyRobot):
    """Feels one row of a list at each step."""

    def __init__(self, felt):
        super().__init__(len(felt))
        self.felt = felt

    def observe(self):
        at = len(self.felt) - self.left
        super().observe()
        return feeling(*self.felt[at])


def test_drives_over_one_link_are_episodes_of_their_own(bundle):
    manifest = open_bundle(bundle).manifest
    ahead = [(0.5 * step, 0.0) for step in range(6)]
    with policy_process(bundle, manifest) as link:
        driver = Driver(link, manifest, misses=10)
        for _ in range(2):  # the second begins where the first did, 2.5 rad away
            assert driver.run(Walker(ahead), 5.0) is None
        robot = Walker([(0.0, 0.0), (2.0, 0.0), (2.0, 0.0)])
        assert "jumped by 2 rad" in driver.run(robot, 5.0)
    assert len(robot.stops) == 1


@pytest.mark.slow
def test_a_policy_process_waits_for_a_robot_that_takes_its_time(bundle):
    manifest = open_bundle(bundle).manifest
    with policy_process(bundle, manifest) as link:
        time.sleep(SILENCE + 1.0)
        assert Driver(link, manifest, misses=10).run(ToyRobot(3), 5.0) is None
