"""Graphs as C: every operation against onnxruntime, and what has no C source is refused by name."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
from installed_compilers import needs_compiler
from onnx import TensorProto, helper, numpy_helper

from robopolicy.bundles.c_source.source import OPERATIONS
from robopolicy.bundles.c_source.tensors import UnsupportedError
from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.runtime.compiled import CompiledGraph
from robopolicy.runtime.graph import OnnxPolicy

RNG = np.random.default_rng(5)
INT = np.int64


def reals(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def model(nodes, inputs, outputs, constants=(), starts=None):
    """A graph of `nodes`; all outputs are cast to float32 under their names."""
    kept = [helper.make_node("Cast", [f"{name}_"], [name], to=TensorProto.FLOAT) for name in outputs]
    body = helper.make_graph(
        [*nodes, *kept],
        "toy",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(a.shape)) for n, a in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()],
    )
    made = helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    if starts:
        helper.set_model_props(made, {"state_starts": json.dumps(starts)})
    return onnx.shape_inference.infer_shapes(made, data_prop=True).SerializeToString()


def both(graph, inputs):
    """The outputs of onnxruntime and of C."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    wanted = dict(zip([one.name for one in session.get_outputs()], session.run(None, inputs), strict=True))
    return wanted, CompiledGraph(c_graph(graph)).run(inputs)


def one_node(name, operands, constants=(), outputs=1, **attributes):
    """A graph of one operation; `constants` are places of operands that are known before."""
    names = [f"x{place}" for place in range(len(operands))]
    arrays = dict(zip(names, operands, strict=True))
    known = {n: a for place, (n, a) in enumerate(arrays.items()) if place in constants}
    given = {n: a for n, a in arrays.items() if n not in known}
    made = ["action", "scores"][:outputs]
    nodes, read = [], {}
    for key, array in given.items():
        to = helper.np_dtype_to_tensor_dtype(array.dtype)
        read[key] = f"{key}_typed"
        nodes.append(helper.make_node("Cast", [key], [read[key]], to=to))
    words = [read.get(n, n) for n in names]
    nodes.append(helper.make_node(name, words, [f"{one}_" for one in made], **attributes))
    floats = {key: array.astype(np.float32) for key, array in given.items()}
    return model(nodes, floats, made, known), floats


A, B = reals(5, 24), reals(5, 24)
POSITIVE, TRUTH, OTHER = np.abs(A) + 0.1, A > 0, B > 0.3
WHOLE = RNG.integers(-9, 9, (5, 24)).astype(INT)
ROW = reals(24)
WITH_NAN = np.where(OTHER, np.float32(np.nan), A)
WITH_INF = np.where(OTHER, np.float32(np.inf), np.where(TRUTH, A, np.float32(-np.inf)))
TIES = np.round(4 * A) / np.float32(4)
BY_TWO = {"Add", "Sub", "Mul", "Div", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}
LOGIC = {"And", "Or", "Xor"}
REDUCTIONS = [f"Reduce{kind}" for kind in ("Sum", "Mean", "SumSquare", "Max", "Min")]
# Operands, places of constants, number of outputs, attributes.
CASES = {
    **{name: [([A, B],), ([A, ROW],), ([A, np.float32(2.5)], (1,))] for name in BY_TWO},
    **{name: [([TRUTH, OTHER],)] for name in LOGIC},
    **{
        name: [
            ([A, np.array([axis], INT)], (1,), 1, {"keepdims": keep}) for axis in (0, 1) for keep in (0, 1)
        ]
        + [
            ([A],),
            ([reals(3, 5, 4, 2), np.array([1, 3], INT)], (1,)),
            ([reals(2, 37), np.array([1], INT)], (1,)),
            *([([WHOLE, np.array([0], INT)], (1,)), ([WHOLE],)] if name == "ReduceSum" else []),
        ]
        for name in REDUCTIONS
    },
    "Abs": [([A],)],
    "ArgMax": [([TIES],), ([TIES], (), 1, {"axis": 1, "keepdims": 0}), ([ROW], (), 1, {"keepdims": 0})],
    "ArgMin": [([TIES],), ([TIES], (), 1, {"axis": 1, "select_last_index": 1})],
    "Cast": [([5 * A], (), 1, {"to": 6}), ([WHOLE], (), 1, {"to": 1}), ([WHOLE], (), 1, {"to": 9})],
    "CastLike": [([5 * A, WHOLE], (1,)), ([WHOLE, A], (1,))],
    "Ceil": [([5 * A],)],
    "Clip": [
        ([A, np.float32(-0.5), np.float32(0.7)], (1, 2)),
        ([WITH_NAN, np.float32(-1), np.float32(1)], (1, 2)),
    ],
    "Concat": [
        ([A, B], (), 1, {"axis": 0}),
        ([A, B, A], (), 1, {"axis": -1}),
        ([A, B], (1,), 1, {"axis": 1}),
        ([np.abs(WHOLE), WHOLE], (0,), 1, {"axis": 0}),
    ],
    "Conv": [
        (
            [reals(1, 2, 9, 8), reals(3, 2, 3, 3), reals(3)],
            (1, 2),
            1,
            {"pads": [1, 1, 1, 1], "strides": [2, 2]},
        ),
        ([reals(1, 2, 9, 8), reals(3, 2, 2, 3)], (1,)),
        ([reals(1, 2, 9, 8), reals(3, 2, 3, 3)], (1,), 1, {"pads": [0, 1, 2, 3], "strides": [2, 1]}),
    ],
    "Cos": [([9 * A],)],
    "Einsum": [
        ([reals(9, 4), reals(9, 6)], (), 1, {"equation": "sn,sw->nw"}),
        ([reals(9, 30), reals(5, 30)], (), 1, {"equation": "tw,nw->tn"}),
        ([reals(2, 9, 5), reals(2, 5, 20)], (), 1, {"equation": "bij,bjk->bik"}),
        ([reals(7), reals(7)], (), 1, {"equation": "a,a->"}),
        ([reals(7), reals(3)], (), 1, {"equation": "a,b->ba"}),
        ([reals(7, 3, 2), reals(3, 2, 5)], (), 1, {"equation": "abc,bcd->da"}),
        ([reals(6, 4), reals(6, 5), reals(6, 2)], (), 1, {"equation": "lr,lc,lv->rcv"}),
        ([reals(6, 4)], (), 1, {"equation": "ab->b"}),
        ([reals(6, 4), reals(3)], (), 1, {"equation": "ab,c->ac"}),
    ],
    "Equal": [([TIES, np.round(4 * B) / 4],), ([WHOLE, np.array(3, INT)], (1,))],
    "Exp": [([9 * A],)],
    "Expand": [([ROW, np.array([3, 5, 24], INT)], (1,))],
    "Flatten": [([reals(2, 3, 4)], (), 1, {"axis": 2})],
    "Floor": [([5 * A],)],
    "Gather": [
        ([A, np.array([3, 0, -1], INT)], (1,)),
        ([A, np.array([[3, 0], [4, 1]], INT)], (), 1, {"axis": 0}),
        ([A, np.array([3, 23, -24, 7], INT)], (), 1, {"axis": 1}),
        ([reals(3, 4, 5), np.array(2, INT)], (1,), 1, {"axis": 1}),
        ([reals(3, 4, 5), np.array(2, INT)], (), 1, {"axis": 1}),
    ],
    "Gemm": [
        ([A, reals(24, 37), reals(37)], (1, 2)),
        ([A, reals(24, 7)], (), 1, {"alpha": 0.5}),
        ([reals(24, 5), reals(3, 24), reals(3)], (), 1, {"transA": 1, "transB": 1, "beta": 2.0}),
    ],
    "Identity": [([A],)],
    "IsInf": [([WITH_INF],), ([WITH_INF], (), 1, {"detect_negative": 0})],
    "IsNaN": [([WITH_NAN],)],
    "Log": [([POSITIVE],)],
    "MatMul": [
        ([A, reals(24, 20)],),
        ([reals(3, 5, 24), reals(24, 3)],),
        ([reals(24), reals(24, 9)],),
        ([reals(800) / np.float32(800), reals(800, 640)],),
        ([A, reals(24)],),
        ([reals(2, 3, 5, 4), reals(2, 1, 4, 6)],),
    ],
    "Max": [([A, B, ROW],), ([WITH_NAN, B],), ([A, WITH_NAN],), ([WITH_NAN, np.float32(0)], (1,))],
    "Min": [([A, B, ROW],), ([WITH_NAN, B],), ([WITH_NAN, np.float32(0)], (1,))],
    "Mod": [
        ([WHOLE, np.array(7, INT)], (1,)),
        ([WHOLE, np.array(-7, INT)], (1,)),
        ([5 * A, B], (), 1, {"fmod": 1}),
    ],
    "Neg": [([A],), ([WHOLE],)],
    "Not": [([TRUTH],)],
    "Pad": [
        ([A, np.array([1, 0, 2, 3], INT), np.float32(0.5)], (1, 2)),
        ([A, np.array([0, 2, 0, 0], INT)], (1,)),
    ],
    "Pow": [([A, np.float32(2)], (1,)), *(([POSITIVE, np.float32(power)], (1,)) for power in (0.5, -3))],
    "Reciprocal": [([POSITIVE],)],
    "Relu": [([A],), ([WITH_NAN],)],
    "Reshape": [([A, np.array([0, 4, -1], INT)], (1,))],
    "Round": [([np.concatenate([5 * A, [np.arange(-12, 12) + 0.5]]).astype(np.float32)],)],
    "ScatterND": [
        ([reals(6, 3), np.array([[4], [0], [4]], INT), reals(3, 3)], (), 1, {"reduction": "add"}),
        ([reals(6), np.array([[5], [-1]], INT), reals(2)], (1,), 1, {"reduction": "add"}),
    ],
    "Sigmoid": [([5 * A],)],
    "Sign": [([A],)],
    "Sin": [([9 * A],)],
    "Slice": [
        ([A, np.array([1], INT), np.array([-1], INT), np.array([1], INT), np.array([3], INT)], (1, 2, 3, 4)),
        (
            [A, np.array([-1], INT), np.array([-99], INT), np.array([0], INT), np.array([-2], INT)],
            (1, 2, 3, 4),
        ),
        ([A, np.array([1, 2], INT), np.array([4, 99], INT)], (1, 2)),
    ],
    "Softmax": [([5 * A],), ([A], (), 1, {"axis": 0})],
    "Split": [
        ([A, np.array([4, 20], INT)], (1,), 2, {"axis": 1}),
        ([A], (), 2, {"axis": 1, "num_outputs": 2}),
    ],
    "Sqrt": [([POSITIVE],)],
    "Squeeze": [([reals(1, 4, 1), np.array([0], INT)], (1,)), ([reals(1, 4, 1)],)],
    "Tanh": [([A],)],
    "Tile": [([reals(3, 4), np.array([2, 3], INT)], (1,))],
    "TopK": [
        ([TIES, np.array([7], INT)], (1,), 2),
        ([np.abs(TIES), np.array([7], INT)], (1,), 2, {"largest": 0}),
    ],
    "Transpose": [([reals(2, 3, 4)],), ([reals(2, 3, 4)], (), 1, {"perm": [1, 2, 0]})],
    "Unsqueeze": [([A, np.array([0, 3], INT)], (1,))],
    "Where": [([TRUTH, A, B],), ([TRUTH, A, np.float32(0)], (2,))],
}


def test_every_operation_has_cases():
    assert CASES.keys() == OPERATIONS.keys()


@pytest.mark.rest_slow
@needs_compiler
@pytest.mark.parametrize("name", sorted(CASES))
def test_an_operation_computes_what_onnxruntime_computes(name):
    for case in CASES[name]:
        operands, constants, outputs, attributes = (*case, *((), 1, {})[len(case) - 1 :])
        wanted, found = both(*one_node(name, operands, constants, outputs, **attributes))
        for output in wanted:
            assert found[output].shape == wanted[output].shape
            np.testing.assert_allclose(found[output], wanted[output], rtol=2e-6, atol=2e-6)


@needs_compiler
def test_a_layout_is_only_a_view_of_what_it_shows():
    """Transposed, cut, spread and joined before a sum, so that a wrong stride shows."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[2, 0, 1]),
        helper.make_node("Slice", ["turned", "starts", "ends", "axes", "steps"], ["cut"]),
        helper.make_node("Reshape", ["cut", "rows"], ["flat"]),
        helper.make_node("Expand", ["flat", "wide"], ["spread"]),
        helper.make_node("Concat", ["spread", "spread"], ["joined"], axis=2),
        helper.make_node("ReduceSum", ["joined", "last"], ["action_"], keepdims=0),
        helper.make_node("MatMul", ["joined", "weights"], ["scores_"]),
    ]
    constants = {
        "starts": np.array([5, 1], INT),
        "ends": np.array([-99, 4], INT),
        "axes": np.array([0, 2], INT),
        "steps": np.array([-2, 1], INT),
        "rows": np.array([3, 1, 6], INT),
        "wide": np.array([3, 2, 6], INT),
        "last": np.array([2], INT),
        "weights": reals(12, 5),
    }
    inputs = {"x": reals(2, 5, 6)}
    wanted, found = both(model(nodes, inputs, ("action", "scores"), constants), inputs)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)


def looped(rounds=3, ends=False):
    """A loop that adds a row of a constant to a state, and collects the state."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["rows", "round"], ["row"]),
            helper.make_node("Add", ["before", "row"], ["after"]),
            helper.make_node("Not" if ends else "Identity", ["going"], ["goes_on"]),
            helper.make_node("Identity", ["after"], ["seen"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("seen", TensorProto.FLOAT, [4]),
        ],
    )
    nodes = [helper.make_node("Loop", ["rounds", "true", "x"], ["action_", "scores_"], body=body)]
    constants = {"rounds": np.array(rounds, INT), "true": np.array(True), "rows": reals(3, 4)}
    inputs = {"x": reals(4)}
    return model(nodes, inputs, ("action", "scores"), constants), inputs


# What lies between two tables of 256 x 256: rows that need their own row, or other rows as well.
BETWEEN = {
    "a sum of each row": [("ReduceSum", ["p", "one"], "s"), ("Div", ["p", "s"], "z")],
    "a sum of each column": [("ReduceSum", ["p", "zero"], "s"), ("Div", ["p", "s"], "z")],
    "the other side": [("Transpose", ["p"], "s"), ("Sub", ["p", "s"], "z")],
    "the rows in turn": [("Slice", ["p", "end", "start", "zero", "back"], "s"), ("Add", ["p", "s"], "z")],
    "halves": [
        ("Slice", ["p", "zero", "half", "one"], "a"),
        ("Slice", ["p", "half", "all", "one"], "b"),
        ("Concat", ["b", "a"], "s"),
        ("Mul", ["p", "s"], "z"),
    ],
    "a product of the table": [("MatMul", ["p", "p"], "s"), ("Add", ["p", "s"], "z")],
    "rows of two tables": [("Neg", ["t"], "n"), ("Exp", ["n"], "s"), ("Add", ["p", "s"], "z")],
}


@needs_compiler
@pytest.mark.parametrize("between", BETWEEN)
def test_tables_that_are_computed_some_rows_at_a_time(between):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"]),
        helper.make_node("Exp", ["t"], ["p"]),
        *(
            helper.make_node(name, inputs, [out], **({"axis": 1} if name == "Concat" else {}))
            for name, inputs, out in BETWEEN[between]
        ),
        helper.make_node("MatMul", ["z", "v"], ["action_"]),
        helper.make_node("ReduceMax", ["z", "one"], ["scores_"]),
    ]
    places = {"zero": 0, "one": 1, "half": 128, "all": 256, "end": 255, "start": -999, "back": -1}
    read = {name for node in nodes for name in node.input}
    constants = {name: np.array([place], INT) for name, place in places.items() if name in read}
    constants |= {"w": 0.3 * reals(8, 256), "v": reals(256, 8)}
    inputs = {"x": 0.3 * reals(256, 8)}
    graph = model(nodes, inputs, ("action", "scores"), constants)
    wanted, found = both(graph, inputs)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-4)
    if between == "a sum of each row":  # no table is ever whole
        assert c_graph(graph).numbers < 256 * 256 / 4


@needs_compiler
def test_a_loop_is_unrolled():
    wanted, found = both(*looped())
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-6)


@needs_compiler
def test_a_place_out_of_range_is_an_error():
    graph, inputs = one_node("Gather", [A, np.array([3, 0], INT)], (), 1, axis=0)
    compiled = CompiledGraph(c_graph(graph))
    compiled.run(inputs)
    inputs["x1"] = np.array([3, 5], np.float32)
    with pytest.raises(ArithmeticError, match="out of range"):
        compiled.run(inputs)


def with_state():
    """The state counts steps, and the action is its sum with the point."""
    nodes = [
        helper.make_node("Add", ["state_n", "one"], ["next_state_n_"]),
        helper.make_node("Add", ["state_n", "point"], ["action_"]),
    ]
    inputs = {"point": reals(3), "state_n": reals(3)}
    made = model(nodes, inputs, ("action", "next_state_n"), {"one": np.ones(3, np.float32)}, {"state_n": 2.0})
    typed = onnx.load_from_string(made)
    for output in typed.graph.output:
        output.CopyFrom(helper.make_tensor_value_info(output.name, TensorProto.FLOAT, [3]))
    return typed.SerializeToString(), {"point": inputs["point"]}


@needs_compiler
def test_a_state_goes_from_step_to_step_as_with_onnxruntime():
    graph, inputs = with_state()
    policies = OnnxPolicy(graph), CompiledGraph(c_graph(graph))
    for begins in (False, False, True, False):
        for policy in policies:
            if begins:
                policy.reset()
        wanted, found = (policy.run(inputs) for policy in policies)
        assert found.keys() == wanted.keys() == {"action"}
        np.testing.assert_array_equal(found["action"], wanted["action"])
    before, after = (policies[1].run(inputs)["action"] for _ in range(2))  # each has memory of its own
    np.testing.assert_allclose(after - before, 1.0, rtol=1e-5)


@needs_compiler
def test_arguments_are_checked_as_with_onnxruntime():
    graph, _ = with_state()
    policy = CompiledGraph(c_graph(graph))
    for observation, words in (
        ({}, "needs 'point'"),
        ({"point": np.zeros(4, np.float32)}, r"point is float32\[4\]: it must be float32\[3\]"),
        ({"point": np.zeros(3)}, r"point is float64\[3\]"),
    ):
        with pytest.raises(ValueError, match=words):
            policy.run(observation)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (lambda: one_node("Erf", [A])[0], "operation Erf has no C source"),
        (lambda: one_node("Pow", [A, np.float32(1.7)], (1,))[0], "Pow with the exponent 1.7"),
        (lambda: one_node("Pow", [A, B])[0], "Pow with exponents that differ"),
        (lambda: one_node("Div", [WHOLE, WHOLE])[0], "Div of integers"),
        (lambda: one_node("Cast", [A], (), 1, to=TensorProto.DOUBLE)[0], "Cast to DOUBLE"),
        (lambda: one_node("Einsum", [reals(3, 3)], (), 1, equation="ii->i")[0], "a diagonal|the label ii"),
        (lambda: looped(ends=True)[0], "Loop that a condition ends"),
        (lambda: looped(rounds=65)[0], "Loop without a known number of at most 64 rounds"),
    ],
)
def test_what_has_no_c_source_is_refused_by_name(graph, words):
    with pytest.raises(UnsupportedError, match=words):
        c_graph(graph())
