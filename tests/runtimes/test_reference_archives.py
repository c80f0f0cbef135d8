"""What may stand in an archive of torch.export that is not trusted; PyTorch is not there, so nothing of it can run."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import Json, Kind
from runtimes.kit.work import Refused
from runtimes.reference import archives
from tests.runtimes.reference_attacks import CONSTANTS, PROGRAM, WEIGHTS, Members, write

SYMBOL = "Symbol('s53', positive=True, integer=True)"


def tensor(*sizes: int | str) -> dict[str, Json]:
    held = [
        {"as_int": size} if isinstance(size, int) else {"as_expr": {"expr_str": size, "hint": None}} for size in sizes
    ]
    return {"dtype": 7, "sizes": held, "requires_grad": False, "device": {"type": "cpu", "index": None}}


def named(name: str) -> dict[str, Json]:
    return {"as_tensor": {"name": name}}


def program() -> dict[str, Any]:
    """A program that multiplies `x` by the parameter `net.w`."""
    arguments = [{"name": each, "arg": named(value), "kind": 1} for each, value in (("self", "x"), ("other", "p_w"))]
    node = {
        "target": "torch.ops.aten.mul.Tensor",
        "inputs": arguments,
        "outputs": [named("mul")],
        "metadata": {"stack_trace": 'File "/home/user/net.py", line 3, in forward\n    import os; return x * self.w'},
        "name": "mul",
    }
    leaf: Json = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf]}
    return {
        "graph_module": {
            "graph": {
                "inputs": [named("p_w"), named("x")],
                "outputs": [named("mul")],
                "nodes": [node],
                "tensor_values": {"x": tensor(1, 3, SYMBOL), "p_w": tensor(3, 1), "mul": tensor(1, 3, SYMBOL)},
                "custom_obj_values": {},
            },
            "signature": {
                "input_specs": [
                    {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "net.w"}},
                    {"user_input": {"arg": named("x")}},
                ],
                "output_specs": [{"user_output": {"arg": named("mul")}}],
            },
            "module_call_graph": [
                {"fqn": "", "signature": {"in_spec": json.dumps([1, tree]), "out_spec": json.dumps([1, leaf])}},
                {"fqn": "net", "signature": {"in_spec": "anything", "out_spec": "at all"}},
            ],
            "metadata": {"custom": "anything"},
        },
        "range_constraints": {"s53": {"min_val": 4, "max_val": 64}},
        "schema_version": {"major": 8, "minor": 20},
        "verifiers": ["TRAINING"],
        "guards_code": ["anything()"],
    }


def weights() -> dict[str, Any]:
    meta = {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": tensor(3, 1)}
    return {"config": {"net.w": meta}}


def put(folder: Path, change: Callable[[Any, Any], None] | None = None) -> Path:
    """Write an archive, changed by a function of its program and its list of weights."""
    held, listed = program(), weights()
    if change:
        change(held, listed)
    members: Members = {
        PROGRAM: json.dumps(held).encode(),
        WEIGHTS: json.dumps(listed).encode(),
        CONSTANTS: b'{"config": {}}',
        "data/weights/weight_0": b"\0" * 12,
        "data/sample_inputs/model.pt": b"a pickle",
        "data/aotinductor/model/evil.so": b"a library",
    }
    path = folder / "net.pt2"
    path.write_bytes(write(members))
    return path


def node(held: Any) -> Any:
    return held["graph_module"]["graph"]["nodes"][0]


def spoken(name: str, text: str) -> Callable[[Any, Any], None]:
    """Give the operator one more argument, which is text."""
    argument = {"name": name, "arg": {"as_string": text}, "kind": 2}
    return lambda held, _listed: node(held)["inputs"].append(argument)


def calling(target: str) -> Callable[[Any, Any], None]:
    return lambda held, _listed: node(held).update(target=target)


def sized(text: str) -> Callable[[Any, Any], None]:
    def change(held: Any, _listed: Any) -> None:
        held["graph_module"]["graph"]["tensor_values"]["x"] = tensor(1, text)

    return change


def lying_in(tree: Json) -> Callable[[Any, Any], None]:
    def change(held: Any, _listed: Any) -> None:
        held["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps([1, tree])

    return change


def container(kind: str, context: str) -> Callable[[Any, Any], None]:
    return lying_in({"type": kind, "context": context, "children_spec": []})


def listing(**changes: Json) -> Callable[[Any, Any], None]:
    return lambda _held, listed: listed["config"]["net.w"].update(changes)


def test_a_program_is_described(tmp_path: Path) -> None:
    assert archives.describe(put(tmp_path)) == {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 3, "s53"]}],
        "outputs": 1,
        "nodes": {"torch.ops.aten.mul.Tensor": 1},
        "parameters": 3,
    }


def test_the_copy_holds_the_graph_and_the_tensors_and_nothing_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(archives.copy_plain(put(tmp_path))) as copy:
        held = {name: copy.read(name) for name in copy.namelist()}
    assert sorted(name.removeprefix("model/") for name in held) == sorted(
        {".data/version", "archive_format", "archive_version", "byteorder", "data/sample_inputs/model.pt"}
        | {PROGRAM, WEIGHTS, CONSTANTS, "data/weights/weight_0"}
    )
    assert held["model/data/sample_inputs/model.pt"] == b""
    assert held["model/data/weights/weight_0"] == b"\0" * 12
    copied, given = json.loads(held[f"model/{PROGRAM}"]), program()
    node(given)["metadata"] = {}
    assert copied["graph_module"]["graph"] == given["graph_module"]["graph"]
    assert copied["graph_module"]["signature"] == given["graph_module"]["signature"]
    for words in (b"anything", b"at all", b"import os"):
        assert not any(words in content for content in held.values())


@pytest.mark.parametrize(
    "change",
    [
        spoken("mode", "bilinear"),
        spoken("equation", "bmchw,bnmc->bmhwn"),
        calling("torch.ops.aten._to_copy.default"),
        calling("torch.ops.aten.__and__.Tensor"),
        calling("torch.ops.higher_order.wrap_with_set_grad_enabled"),
        calling("_operator.getitem"),
        sized("s0"),
        sized("2*s0 + 1"),
        sized(f"FloorDiv(Add({SYMBOL}, Integer(-1)), Integer(2))"),
        sized(f"Max(1, Pow({SYMBOL}, 2))"),
        container("builtins.dict", '["a-b", "c"]'),
        container("builtins.list", "null"),
        lambda held, _listed: node(held).update(name=None),
        lambda held, _listed: node(held)["inputs"].append({"name": "", "arg": {"as_float": "-Infinity"}, "kind": 1}),
    ],
)
def test_what_ordinary_models_hold_passes(change: Callable[[Any, Any], None], tmp_path: Path) -> None:
    assert archives.copy_plain(put(tmp_path, change)).read(2) == b"PK"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (calling("torch.os.system"), "the operator 'torch.os.system'"),
        (calling("torch.ops.aten.add"), "the operator"),
        (calling("torch.ops.aten.__init__.real"), "the operator"),
        (calling("torch.ops.aten._print.default"), "the operator"),
        (calling("torch.ops.aten.add.Tensor.__globals__"), "the operator"),
        (calling("torch.ops.other.add.Tensor"), "the operator"),
        (calling("_operator.attrgetter"), "the operator"),
        (calling("#triton:kernel"), "the operator"),
        (spoken("filename", "passwd"), "the text as argument 'filename'"),
        (spoken("mode", "a'b"), 'the text "a\'b"'),
        (spoken("mode", "a\nb"), "the text"),
        (sized("__import__('os').system('x')"), "the size"),
        (sized("s0.real"), "the size"),
        (sized("s0[0]"), "the size"),
        (sized("(lambda: s0)()"), "the size"),
        (sized("Symbol('s0')('x')"), "the size"),
        (sized("Symbol('a.b')"), "the size"),
        (sized("Symbol(**s0)"), "the size"),
        (sized("eval('s0')"), "the size"),
        (sized("s0 +"), "the size"),
        (sized("s0 + " * 900 + "s0"), "the size"),
        (container("torch.Size", "null"), "the container 'torch.Size'"),
        (container("collections.defaultdict", "null"), "the container"),
        (container("builtins.dict", '[{"__enum__": true, "fqn": "os:x", "name": "a"}]'), "the key"),
        (container("builtins.dict", '["a\'b"]'), "the key"),
        (lambda held, _listed: node(held).update(name="x = 1\n"), "the name"),
        (lambda held, _listed: node(held).update(name="a.b"), "the name 'a.b'"),
        (lambda held, _listed: node(held).update(name="__class__"), "the name"),
        (lambda held, _listed: node(held).update(name=["a"]), "the name"),
        (lambda held, _listed: node(held).update(name={"a": "b"}), "the name"),
        (lambda held, _listed: node(held).update({"a b": 1}), "the name 'a b'"),
        (lambda held, _listed: node(held)["inputs"][0].update(arg={"as_operator": "torch.os.system"}), "the object"),
        (lambda held, _listed: node(held)["inputs"][0].update(arg={"as_custom_obj": {}}), "the object"),
        (lambda held, _listed: node(held)["inputs"][0].update(arg={"as_float": "1e"}), "the number"),
        (lambda held, _listed: held["graph_module"]["graph"]["custom_obj_values"].update(a={}), "the object"),
        (listing(use_pickle=True), "the pickled object 'net.w'"),
        (listing(use_pickle=0), "the pickled object"),
        (listing(path_name="opaque_obj_0"), "the pickled object"),
        (listing(path_name="weight_/../../x"), "the name"),
    ],
)
def test_what_may_be_run_is_refused(change: Callable[[Any, Any], None], words: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        archives.copy_plain(put(tmp_path, change))
    failure = caught.value.failure
    assert failure.kind is Kind.UNTRUSTED_WEIGHTS
    assert f"net.pt2: may run code while it is read: it holds {words}" in failure.message
    assert "trusted = true" in failure.hint


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, "it holds no models/model.json"),
        ({PROGRAM: b"{"}, "models/model.json is no JSON: Expecting property name"),
        ({PROGRAM: b"[" * 100_000}, "models/model.json is no JSON: maximum recursion depth exceeded"),
        ({PROGRAM: b"[]"}, "models/model.json holds a list, not an object"),
        ({PROGRAM: b"{}", WEIGHTS: b"{}"}, "its graph is of another form: KeyError: 'graph_module'"),
        ({PROGRAM: b'{"graph_module": 3}', WEIGHTS: b"{}"}, "its graph is of another form: TypeError"),
    ],
)
@pytest.mark.parametrize("read", [archives.describe, archives.copy_plain])
def test_an_archive_of_another_form_is_refused(
    read: Callable[[Path], object], members: Mapping[str, bytes], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(write(dict(members)))
    with pytest.raises(Refused) as caught:
        read(path)
    assert caught.value.failure.kind is Kind.INVALID_MODEL
    assert f"bytes): cannot be read: {words}" in caught.value.failure.message
    assert "torch.export.save" in caught.value.failure.hint


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    for content in (b"", b"no zip", put(tmp_path).read_bytes()[:-30]):
        path.write_bytes(content)
        with pytest.raises(Refused, match="net.pt2 .* cannot be read: zipfile.BadZipFile: File is not a zip file"):
            archives.describe(path)


def test_a_tensor_whose_bytes_were_changed_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\0" * 12, b"\1" * 12, 1))
    with pytest.raises(Refused, match="data/weights/weight_0: Bad CRC-32"):
        archives.copy_plain(path)
