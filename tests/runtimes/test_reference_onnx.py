"""A model that is an ONNX file already: the gates come first, ONNX Runtime is the reference, PyTorch is not there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from runtimes import contract
from runtimes.contract import Job, Json, Kind, Layout, Step
from runtimes.kit import tensors
from runtimes.kit.work import Failed, Refused, Work
from runtimes.reference import adapter, prepare, structure
from runtimes.reference.files import describe_input
from runtimes.reference.options import Content
from tests.runtimes.gate_models import FLOAT, HALF, model, node, outside

ONNX = {"source": "onnx"}
PREPARED = {"seed": 1, "magnitudes": [1.0]}
Done = tuple[Mapping[str, Json], Path]


class Desk:
    """Does jobs in this process, each in a workspace below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pictures = root / "pictures"
        self.pictures.mkdir()
        Image.fromarray(np.arange(480, dtype=np.uint8).reshape(10, 16, 3)).save(self.pictures / "photo.png")
        self.weights = root / "net"
        self.weights.mkdir()

    def put(self, made: onnx.ModelProto, **files: bytes) -> None:
        (self.weights / "net.onnx").write_bytes(made.SerializeToString())
        for name, content in files.items():
            (self.weights / name).write_bytes(content)

    def do(self, step: Step, inputs: Mapping[str, Path], options: Mapping[str, Json]) -> Done:
        """Do a job; return its facts and the folder of its outputs."""
        layout = Layout(self.root / step)
        layout.inputs.mkdir(parents=True)
        layout.outputs.mkdir()
        for name, path in inputs.items():
            shutil.copytree(path, layout.inputs / name)
        work = Work(layout, Job(step=step, runtime="reference", inputs=tuple(inputs), options=options))
        facts: Callable[[Work], Mapping[str, Json]] = getattr(adapter, step)
        return contract.encode(facts(work)), layout.outputs

    def prepare(self, **options: Json) -> Done:
        inputs = {"weights": self.weights, "pictures": self.pictures}
        return self.do(Step.PREPARE, inputs, {**ONNX, **PREPARED, **options})

    def export(self, prepared: Path, **options: Json) -> Done:
        inputs = {"weights": self.weights, "samples": prepared / "samples", "golden": prepared / "golden"}
        return self.do(Step.EXPORT, inputs, {**ONNX, **options})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def convolution(*shape: int | str, kind: int = FLOAT) -> onnx.ModelProto:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weight = np.linspace(-1, 1, 2 * 3 * 9).reshape(2, 3, 3, 3).astype(dtype)
    nodes = [node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["y"])]
    out = [shape[0], 2, *shape[2:]]
    return model(nodes, {"w": weight}, shape=shape, kind=kind, out=out)


def test_an_onnx_file_goes_all_the_way_byte_for_byte(desk: Desk) -> None:
    desk.put(convolution(1, 3, 6, 8))
    facts, prepared = desk.prepare()
    assert (facts["reference"], facts["parameters"]) == ("onnxruntime", 54)
    told = {"name": "x", "shape": [1, 3, 6, 8], "dtype": "float32", "content": "picture"}
    assert facts["inputs"][0].items() >= told.items()
    assert facts["outputs"] == [{"name": "y", "shape": [1, 2, 6, 8], "dtype": "float32"}]
    assert "ONNX Runtime on the CPU, with nothing optimised, is the reference" in facts["notes"][0]
    assert facts["sensitivity"]["y"]["x"] > 0.1
    exported, folder = desk.export(prepared)
    assert (folder / "model" / "model.onnx").read_bytes() == (desk.weights / "net.onnx").read_bytes()
    assert (exported["opset"], exported["ir_version"], exported["nodes"]) == (17, 8, {"Conv": 1, "Relu": 1})
    assert all(gate["passed"] for gate in exported["gates"])
    assert exported["agreement"]["y"]["cosine"] > 0.99999


def test_data_outside_the_file_travels_along(desk: Desk) -> None:
    desk.put(outside("w.bin"), **{"w.bin": np.ones(3, np.float32).tobytes()})
    exported, folder = desk.export(desk.prepare()[1])
    assert (folder / "model" / "w.bin").read_bytes() == (desk.weights / "w.bin").read_bytes()
    assert exported["size_bytes"] == sum(path.stat().st_size for path in desk.weights.iterdir())
    assert len(onnx.load(folder / "model" / "model.onnx").graph.initializer) == 1


def test_an_open_size_without_a_shape_is_refused(desk: Desk) -> None:
    desk.put(convolution("n", 3, "h", "w"))
    with pytest.raises(Refused) as caught:
        desk.prepare()
    failure = caught.value.failure
    assert failure.kind is Kind.DYNAMIC_SHAPE
    assert "net.onnx: input x is [n, 3, h, w]: h, w are open" in failure.message
    assert failure.hint == "add a shape after the name, e.g. net.onnx#1x3x64x64"


@pytest.mark.parametrize("shape", [[6, 8], [1, 3, 6, 8]])
def test_a_shape_is_written_into_the_exported_file(shape: list[int], desk: Desk) -> None:
    made = convolution("n", 3, "h", "w")
    made.graph.value_info.append(helper.make_tensor_value_info("a", FLOAT, ["n", 2, "h", "w"]))
    desk.put(made)
    _facts, prepared = desk.prepare(shape=shape)
    exported, folder = desk.export(prepared, shape=shape)
    written = onnx.load(folder / "model" / "model.onnx")
    assert [structure.sizes_of(value) for value in (*written.graph.input, *written.graph.output)] == [
        [1, 3, 6, 8],
        [1, 2, 6, 8],
    ]
    assert not written.graph.value_info
    assert exported["agreement"]["y"]["snr_db"] > 100


def test_a_shape_that_contradicts_the_file_is_refused(desk: Desk) -> None:
    desk.put(convolution(1, 3, 6, 8))
    with pytest.raises(Refused, match="the shape given is 1x3x9x9, and no input takes it: x \\[1, 3, 6, 8\\]"):
        desk.prepare(shape=[1, 3, 9, 9])


def test_a_defect_is_refused_by_name_before_anything_runs(desk: Desk) -> None:
    desk.put(model([node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"])]))
    with pytest.raises(Refused) as caught:
        desk.prepare()
    assert caught.value.failure.kind is Kind.INVALID_MODEL
    assert caught.value.failure.message.startswith("net.onnx: gate order: node y (Neg) stands before node a (Relu)")


def test_an_unknown_operator_is_refused_as_such(desk: Desk) -> None:
    desk.put(model([node("Relux", ["x"], ["y"])]))
    with pytest.raises(Refused) as caught:
        desk.prepare()
    assert caught.value.failure.kind is Kind.UNSUPPORTED_OP


def test_a_half_that_overflows_is_refused_on_export(desk: Desk) -> None:
    k = np.array(400, np.float16)
    nodes = [
        node("Mul", ["x", "k"], ["a"]),
        node("Mul", ["a", "a"], ["b"]),
        node("Div", ["b", "k"], ["c"]),
        node("Div", ["c", "k"], ["y"]),
    ]
    desk.put(model(nodes, {"k": k}, kind=HALF))
    _facts, prepared = desk.prepare()
    with pytest.raises(Refused, match="gate fp16_range: node b \\(Mul\\): its float16 output b reaches"):
        desk.export(prepared)


def test_declared_inputs_are_checked_against_the_file(desk: Desk) -> None:
    desk.put(convolution(1, 3, "h", "w"))
    facts, _folder = desk.prepare(inputs=[{"name": "x", "shape": [1, 3, 6, 8], "high": 2.0}])
    assert facts["inputs"][0]["content"] == "uniform"
    shutil.rmtree(desk.root / "prepare")
    with pytest.raises(Refused, match="its inputs are x, not image"):
        desk.prepare(inputs=[{"name": "image", "shape": [1, 3, 6, 8]}])
    shutil.rmtree(desk.root / "prepare")
    with pytest.raises(Refused, match="the shape given is 1x4x6x8"):
        desk.prepare(inputs=[{"name": "x", "shape": [1, 4, 6, 8]}])
    shutil.rmtree(desk.root / "prepare")
    with pytest.raises(Refused, match="its outputs are y, not z"):
        desk.prepare(outputs=["z"], shape=[6, 8])


def test_what_does_not_run_on_the_shape_given_fails_with_the_vendors_words(desk: Desk) -> None:
    made = model([node("Reshape", ["x", "s"], ["y"])], {"s": np.array([2, 3], np.int64)}, shape=["n", 3], out=[2, 3])
    desk.put(made)
    with pytest.raises(Failed, match="net.onnx does not run on x float32 \\[4, 3\\]: ONNX Runtime: "):
        desk.prepare(shape=[4, 3])


def of_two(*shapes: list[int | str]) -> onnx.ModelProto:
    """A model that gives its first input as it is, and its second."""
    made = model([node("Relu", ["x"], ["y"]), node("Relu", ["u"], ["v"])], shape=shapes[0])
    made.graph.input.append(helper.make_tensor_value_info("u", FLOAT, shapes[1]))
    made.graph.output.append(helper.make_tensor_value_info("v", FLOAT, shapes[1]))
    return made


def test_a_shape_goes_to_the_inputs_that_are_open_alone(desk: Desk) -> None:
    desk.put(of_two(["n", 3, "h", "w"], [1, 7]))
    facts, prepared = desk.prepare(shape=[6, 8])
    assert [each["shape"] for each in facts["inputs"]] == [[1, 3, 6, 8], [1, 7]]
    exported, _folder = desk.export(prepared, shape=[6, 8])
    assert set(exported["agreement"]) == {"y", "v"}


def test_an_open_input_that_a_shape_does_not_suit_is_refused(desk: Desk) -> None:
    desk.put(of_two(["n", 3, "h", "w"], ["n", "k"]))
    with pytest.raises(Refused, match="net.onnx: input u is \\[n, k\\]: k is open"):
        desk.prepare(shape=[1, 3, 6, 8])


def test_a_free_batch_is_written_into_the_exported_file(desk: Desk) -> None:
    desk.put(convolution("batch", 3, 6, 8))
    facts, prepared = desk.prepare()
    assert facts["inputs"][0]["shape"] == [1, 3, 6, 8]
    assert "input x: its first size, batch, is open: it is 1" in facts["notes"]
    _exported, folder = desk.export(prepared)
    written = onnx.load(folder / "model" / "model.onnx")
    assert structure.sizes_of(written.graph.input[0]) == [1, 3, 6, 8]


def test_a_shape_that_is_that_of_no_input_is_refused(desk: Desk) -> None:
    desk.put(of_two([1, 3, 6, 8], [1, 7]))
    with pytest.raises(Refused) as caught:
        desk.prepare(shape=[9, 9])
    message = "net.onnx: the shape given is 9x9, and no input takes it: x [1, 3, 6, 8], u [1, 7]"
    assert (caught.value.failure.kind, caught.value.failure.message) == (Kind.DYNAMIC_SHAPE, message)


def test_a_shape_that_one_of_the_inputs_has_is_no_contradiction(desk: Desk) -> None:
    desk.put(of_two([1, 3, 6, 8], [1, 7]))
    assert [each["shape"] for each in desk.prepare(shape=[6, 8])[0]["inputs"]] == [[1, 3, 6, 8], [1, 7]]


def test_an_input_of_any_rank_is_refused(desk: Desk) -> None:
    made = model([node("Relu", ["x"], ["y"])])
    made.graph.input[0].type.tensor_type.ClearField("shape")
    desk.put(made)
    with pytest.raises(Refused, match="gate checker: .* 'shape' of 'type' is required but missing"):
        desk.prepare(shape=[2, 5, 4])


@pytest.mark.parametrize(
    ("operator", "make", "kind"),
    [
        ("SequenceConstruct", helper.make_tensor_sequence_value_info, "sequence"),
        ("Optional", None, "optional"),
    ],
)
def test_an_output_that_is_no_tensor_is_refused_by_name(
    operator: str, make: Callable[..., onnx.ValueInfoProto] | None, kind: str, desk: Desk
) -> None:
    made = model([node("Relu", ["x"], ["y"]), node(operator, ["y"], ["many"])])
    if make is None:
        held = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2, 3]))
        made.graph.output.append(helper.make_value_info("many", held))
    else:
        made.graph.output.append(make("many", FLOAT, [2, 3]))
    desk.put(made)
    with pytest.raises(Refused, match=f"net.onnx: output many is a {kind}, not a tensor"):
        desk.prepare()
    facts = describe(desk, **{"net.onnx": made.SerializeToString()})
    assert [each["dtype"] for each in facts["outputs"]] == ["float32", kind]


def test_an_input_that_is_no_tensor_is_refused_by_name(desk: Desk) -> None:
    made = model([node("SequenceAt", ["many", "i"], ["y"])], {"i": np.array(0)})
    made.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("many", FLOAT, [2, 3]))
    desk.put(made)
    with pytest.raises(Refused, match="net.onnx: input many is a sequence, not a tensor"):
        desk.prepare()


@pytest.mark.parametrize(
    ("shape", "dtype", "content", "low", "high"),
    [
        ((1, 3, 4, 5), "float32", Content.PICTURE, 0.0, 1.0),
        ((1, 1, 4, 5), "float16", Content.PICTURE, 0.0, 1.0),
        ((1, 3, 4, 5), "uint8", Content.PICTURE, 0.0, 255.0),
        ((1, 7, 4, 5), "uint8", Content.INTEGERS, 0.0, 1.0),
        ((1, 3, 4, 5), "int8", Content.INTEGERS, 0.0, 1.0),
        ((1, 7, 4, 5), "float32", Content.UNIFORM, -1.0, 1.0),
        ((2, 3), "float32", Content.UNIFORM, -1.0, 1.0),
        ((1, 77), "int64", Content.INTEGERS, 0.0, 1.0),
        ((1, 77), "bool", Content.INTEGERS, 0.0, 1.0),
    ],
)
def test_an_input_is_taken_for_what_its_shape_suggests(
    shape: tuple[int, ...], dtype: str, content: Content, low: float, high: float
) -> None:
    each, note = describe_input("x", shape, dtype)
    assert (each.content, each.low, each.high, each.shape) == (content, low, high, shape)
    assert "name the inputs in matrix.toml where that is wrong" in note


def test_an_input_of_a_type_that_does_not_travel_is_refused() -> None:
    with pytest.raises(Refused, match="input x: has the type STRING"):
        describe_input("x", (1,), "STRING")


def test_an_output_of_a_type_that_numpy_lacks_is_not_supported(desk: Desk) -> None:
    made = model([node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)])
    made.graph.output[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    desk.put(made)
    with pytest.raises(Refused, match="net.onnx: output y has the type bfloat16, which is not supported") as caught:
        desk.prepare()
    assert "cast it to float32 inside the model" in caught.value.failure.hint


def test_an_input_without_an_axis_is_legal(desk: Desk) -> None:
    made = model([node("Mul", ["x", "scale"], ["y"])], shape=[2, 3])
    made.graph.input.append(helper.make_tensor_value_info("scale", FLOAT, []))
    desk.put(made)
    facts, prepared = desk.prepare()
    assert [each["shape"] for each in facts["inputs"]] == [[2, 3], []]
    assert desk.export(prepared)[0]["agreement"]["y"]["cosine"] > 0.999


@pytest.mark.parametrize("where", ["opset", "size"])
def test_a_number_beyond_all_reason_is_refused(where: str, desk: Desk) -> None:
    made = convolution(1, 3, 6, 8)
    if where == "opset":
        made.opset_import[0].version = 2**62
    else:
        for value in (made.graph.input[0], made.graph.output[0]):
            value.type.tensor_type.shape.dim[2].dim_value = 2**62
    desk.put(made)
    with pytest.raises(Refused, match=str(2**62)):
        desk.prepare()


def describe(desk: Desk, **files: bytes) -> Mapping[str, Json]:
    folder = desk.root / "file"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return desk.do(Step.INSPECT, {"file": folder}, {})[0]


def test_inspect_describes_an_onnx_file(desk: Desk) -> None:
    content = convolution("n", 3, 6, 8).SerializeToString()
    facts = describe(desk, **{"net.onnx": content})
    assert (facts["file"], facts["format"], facts["size_bytes"]) == ("net.onnx", "ONNX", len(content))
    assert facts["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["n", 3, 6, 8]}]
    assert (facts["opsets"], facts["nodes"], facts["parameters"]) == ({"ai.onnx": 17}, {"Conv": 1, "Relu": 1}, 54)
    assert [gate["name"] for gate in facts["gates"] if not gate["passed"]] == ["static_shapes"]


def test_inspect_names_data_outside_the_file(desk: Desk) -> None:
    facts = describe(desk, **{"net.onnx": outside("w.bin").SerializeToString(), "w.bin": b"\0" * 12})
    assert facts["external_data"] == ["w.bin"]
    assert all(gate["passed"] for gate in facts["gates"])


def test_inspect_says_of_a_damaged_onnx_file_what_is_wrong(desk: Desk) -> None:
    facts = describe(desk, **{"net.onnx": b"PK\x03\x04"})
    assert facts["format"] == "ONNX"
    assert [gate["name"] for gate in facts["gates"] if not gate["passed"]] == ["readable"]
    assert "inputs" not in facts


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"net.onx": b""}, "net.onx is not one model file; did you mean '.onnx'?"),
        ({"a.onnx": b"", "b.onnx": b""}, "a.onnx, b.onnx is not one model file; known are"),
        ({}, "nothing is not one model file"),
    ],
)
def test_inspect_refuses_what_is_no_model_file(files: dict[str, bytes], words: str, desk: Desk) -> None:
    with pytest.raises(Refused) as caught:
        describe(desk, **files)
    assert words in caught.value.failure.message


def test_versions_are_those_of_what_is_installed() -> None:
    found = adapter.versions()
    assert found["onnx"] == onnx.__version__
    assert "torch" not in found


def test_a_golden_output_that_is_not_finite_is_told_with_its_sample(desk: Desk) -> None:
    desk.put(model([node("Log", ["x"], ["y"])], shape=(2, 3)))
    with pytest.raises(Failed, match="sample photo: output y of the reference: [1-6] of 6 values are NaN or infinite"):
        desk.prepare()


def test_complex_outputs_are_refused() -> None:
    with pytest.raises(Refused, match="output y: has the type complex64"):
        prepare._check_outputs("photo", {"y": np.zeros(2, np.complex64)})


def test_samples_of_bytes_travel(desk: Desk) -> None:
    nodes = [node("Cast", ["x"], ["a"], to=FLOAT), node("Relu", ["a"], ["y"])]
    made = model(nodes, kind=TensorProto.UINT8)
    made.graph.output[0].type.tensor_type.elem_type = FLOAT
    desk.put(made)
    facts, folder = desk.prepare()
    assert facts["inputs"][0]["dtype"] == "uint8"
    assert tensors.load_samples(folder / "samples")["photo"]["x"].dtype == np.uint8
