"""What of the RKNN adapter needs no toolkit: what is read out of its words and its files."""

from __future__ import annotations

import re
import struct
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.contract import Kind
from runtimes.kit.work import Failed
from runtimes.rknn import adapter, artefact, failures, layers
from tests.runtimes import rknn_ops
from tests.runtimes.openvino_jobs import ROOT, conv_net, one
from tests.runtimes.rknn_jobs import Jobs

STAMP = "D RKNN: [19:48:30.517] "
TABLE = [
    "ID   OpType         DataType Target InputShape   OutputShape  Cycles(DDR/NPU)  SparseRatio  FullName ",
    "-" * 110,
    "0    InputOperator  FLOAT16  CPU    \\            (1,3,16,20)  0/0/0                         InputOperator:x ",
    "1    ConvRelu       FLOAT16  NPU    (1,3,16,20)  (1,4,16,20)  1021/2880/2880   0%           Conv:/body/Conv ",
    "2    Exp            INT8     CPU    (1,4,16,20)  (1,4,16,20)  0/0/0                         Exp:a b: c ",
    "3    Conv           FLOAT16  NPU    (1,4,16,20)  (1,4,16,20)  0/0/0                         Conv:",
    "4    OutputOperator FLOAT16  CPU    (1,4,16,20)  \\            0/0/0                         OutputOperator:y",
    "-" * 110,
    "<<<<<<<< end: rknn::RKNNModelRegCmdbuildPass",
]
STAMPED = [STAMP + line for line in TABLE]


def declared() -> dict[str, dict[str, object]]:
    targets: dict[str, dict[str, object]] = tomllib.loads((ROOT / "rknn" / "runtime.toml").read_text())["targets"]
    return targets


def test_the_targets_are_those_that_the_toolkit_says_it_has(
    tmp_path: Path, environment_python: Callable[[str], Path]
) -> None:
    jobs = Jobs(tmp_path, environment_python("rknn"))
    text = "\n".join(jobs.program("from rknn.api import RKNN; print(RKNN.config.__doc__)"))
    known = re.search(r"target_platform: target chip platform, currently support (.*?)\. default", text, re.DOTALL)
    assert known
    assert sorted(re.findall(r"\w+", known[1])) == sorted(declared())
    assert {tuple(target["devices"]) for target in declared().values()} == {("NPU", "CPU")}  # type: ignore[arg-type]


def test_the_table_in_the_documentation_has_a_row_for_each_operator_that_was_measured() -> None:
    text = (ROOT.parent / "docs" / "runtimes" / "rknn.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| (NPU|CPU|no kernel|wrong|refused|dies) \|", text, re.MULTILINE)
    assert [name for name, _ in rows] == sorted(each.name for each in rknn_ops.cases())


def test_layers_are_read_with_names_that_hold_blanks_and_columns_that_are_empty() -> None:
    assert layers.read(["before", *STAMPED, "after"]) == [
        layers.Layer(node="/body/Conv", op="ConvRelu", device="NPU", dtype="FLOAT16"),
        layers.Layer(node="a b: c", op="Exp", device="CPU", dtype="INT8"),
        layers.Layer(node="layer 3", op="Conv", device="NPU", dtype="FLOAT16"),
    ]


def test_of_two_tables_the_last_counts() -> None:
    other = [line.replace("/body/Conv", "/other") for line in STAMPED]
    assert layers.read([*other, *STAMPED])[0].node == "/body/Conv"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        STAMPED[:1] + STAMPED[2:],
        [line.replace("2    Exp", "x    Exp") for line in STAMPED],
        [line for line in STAMPED if "2    Exp" not in line],
        [line.replace("FLOAT16  NPU ", "FLOAT16  npu ") for line in STAMPED],
        [line.replace("ConvRelu  ", "ConvRelu ") for line in STAMPED],
        STAMPED[:5],
    ],
)
def test_a_table_that_cannot_be_read_whole_is_not_read_at_all(lines: list[str]) -> None:
    with pytest.raises(layers.BadTable):
        layers.read(lines)


@given(
    node=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1), op=st.from_regex(r"\A\w+\Z")
)
def test_a_node_without_a_kernel_is_found_whatever_it_is_called(node: str, op: str) -> None:
    line = f"No lowering found for: {node}, node type = {op}, use CustomOperatorLower instead."
    assert layers.unlowered(["D RKNN: nothing", line]) == [layers.Unlowered(node=node, op=op)]


def test_a_rule_that_failed_is_named_and_a_log_without_one_names_none() -> None:
    said = (
        "W You can add disable_rules=['convert_layernorm_to_exnorm'] in rknn.config() to temporarily disable the rule!"
    )
    assert failures.crashing_rule(["W nothing", said]) == "convert_layernorm_to_exnorm"
    assert failures.crashing_rule(["W nothing"]) == ""


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        ("MemoryError: Unable to allocate 3 GiB", Kind.MEMORY),
        ("OSError: [Errno 28] No space left on device: 'check0.onnx'", Kind.DISK),
        ("KeyError: 'LayerNormalization'", Kind.TOOLCHAIN),
        ("KeyError: 'v1'", Kind.INVALID_MODEL),
        ("-1", Kind.TOOLCHAIN),
    ],
)
def test_kinds_are_told_apart_by_words(raised: str, kind: Kind) -> None:
    ops = {"/norm": "LayerNormalization"}
    failure, refuses = failures.describe("build", ["E build: Catch exception", "D more"], raised, ops)
    assert (failure.kind, refuses) == (kind, False)
    assert raised in failure.message
    assert "E build: Catch exception" in failure.message


@pytest.mark.parametrize("raised", ["ValueError: All outputs ['y'] of model are constants, invalid!", "KeyError: 'v1'"])
def test_a_model_that_falls_apart_without_its_branch_is_refused_for_the_branch(raised: str) -> None:
    failure, refuses = failures.describe("build", [], raised, {"/relu": "Relu", "/if": "If"})
    assert (failure.kind, failure.op, failure.node, refuses) == (Kind.UNSUPPORTED_OP, "If", "/if", True)
    assert raised in failure.message


def test_what_is_no_failure_of_the_toolkit_is_not_taken_for_its_words() -> None:
    lines = ["E RKNN: [19:48:31.315] Unkown op target: 0", "E rknn-toolkit2 version: 2.5.0", "E build: the true cause"]
    failure, _ = failures.describe("build", lines, "-1", {})
    assert failure.message == "build: the true cause\n\n-1\nE build: the true cause"


@pytest.mark.parametrize(
    ("manner", "words", "kind"),
    [
        ("was killed by SIGKILL", "D", Kind.MEMORY),
        ("was killed by SIGABRT", "terminate called after throwing an instance of 'std::bad_alloc'", Kind.MEMORY),
        ("was killed by SIGABRT", "Not Support Dtype: 2", Kind.CRASH),
    ],
)
def test_a_death_for_memory_is_told_from_a_crash(manner: str, words: str, kind: Kind) -> None:
    failure = failures.died("build", manner, ["first", words], "", "")
    assert failure.kind is kind
    assert failure.message.endswith(f"first\n{words}")


def test_the_vendors_last_words_are_whole_however_much_it_tells_of_its_own_work() -> None:
    spoken = [f"word {number}" for number in range(60)]
    told = [f"D build: remove node = {number}" for number in range(500)]
    failure = failures.died("build", "was killed by SIGSEGV", [*spoken, *told], "", "")
    assert failure.message.endswith("\n".join([*spoken, told[-1]]))
    assert "(499 more lines are in the job's log, log.txt)" in failure.message
    assert "more lines" not in failures.died("build", "was killed by SIGSEGV", spoken, "", "").message


def test_the_share_of_layers_that_are_not_quantised_is_a_note() -> None:
    kinds = ("INT8", "INT8", "UINT8", "FLOAT16")
    table = [layers.Layer(node="/a", op="Conv", device="NPU", dtype=dtype) for dtype in kinds]
    said = ["3 of 4 layers (75%) calculate in int8; the rest: 1 in FLOAT16"]
    assert adapter._share_notes("int8", table, quantized=True) == said
    assert adapter._share_notes("int8", table[:3], quantized=True) == []
    assert adapter._share_notes("fp16", table[3:], quantized=False) == []


def test_an_artefact_without_an_int8_layer_is_no_int8_artefact() -> None:
    model = conv_net().model
    table = [layers.Layer(node="/a", op="Conv", device="NPU", dtype=dtype) for dtype in ("FLOAT16", "INT8")]
    adapter._check_precision("int8", table, model, quantized=True)
    adapter._check_precision("fp16", table, model, quantized=False)
    with pytest.raises(Failed, match="int8 was asked for, but none of 1 layers is; they are FLOAT16"):
        adapter._check_precision("int8", table[:1], model, quantized=True)


def test_an_artefact_whose_products_are_all_in_int8_is_no_float_artefact() -> None:
    ops = ("ConvRelu", "exMatMul", "exDataConvert")
    table = [layers.Layer(node="/a", op=op, device="NPU", dtype="INT8") for op in ops]
    with pytest.raises(
        Failed, match="fp16 was asked for, but all 2 convolutions and matrix products calculate in int8"
    ):
        adapter._check_precision("fp16", table, conv_net().model, quantized=False)
    # Of a model without any, the convolution is the toolkit's own way to take the input.
    adapter._check_precision("fp16", table, one("Relu").model, quantized=False)
    adapter._check_precision("fp16", table[2:], conv_net().model, quantized=False)


def rknn(attributes: str, trailer: str, magic: bytes = b"RKNN\0\0\0\0") -> bytes:
    table = attributes.encode()
    return magic + b"\x01\x02" + struct.pack("<I", len(table)) + table + b"\0padding\xff" + trailer.encode() + b"\0"


TRAILER = '{"connection":[],"target_platform":["rk3588"],"version":"2.5.0"}'
ATTRIBUTES = str(
    {
        "attrs": {
            "y": {"is_output": True, "idx": 0, "shape": [1, 4], "dtype": "bool", "layout": "undefined"},
            "b": {"is_output": False, "idx": 1, "shape": [], "dtype": "int64", "layout": ""},
            "a": {"is_output": False, "idx": 0, "shape": [1, 3], "dtype": "float32", "layout": "nchw"},
        }
    }
)


def test_an_artefact_tells_its_target_its_toolkit_and_its_ports_in_order(tmp_path: Path) -> None:
    path = tmp_path / "model.rknn"
    path.write_bytes(rknn(ATTRIBUTES, TRAILER))
    found = artefact.read(path)
    assert (found.targets, found.toolkit) == (("rk3588",), "2.5.0")
    assert [(port.name, port.shape, port.dtype) for port in found.inputs] == [
        *(("a", (1, 3), "float32"), ("b", (), "int64")),
    ]
    assert [port.name for port in found.outputs] == ["y"]
    assert found.layouts == {"a": "nchw", "b": "", "y": "undefined"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "starts with b''"),
        (rknn(ATTRIBUTES, TRAILER, b"ONNX\0\0\0\0"), "starts with b'ONNX"),
        (rknn("nothing", TRAILER), "holds no table of its inputs and outputs"),
        (rknn(ATTRIBUTES[:-4], TRAILER), "its table of inputs and outputs cannot be read"),
        (rknn(ATTRIBUTES, "{"), "does not end with what the toolkit says of it"),
        (rknn(ATTRIBUTES, TRAILER[:-9]), "does not end with what the toolkit says of it"),
    ],
)
def test_a_file_that_is_no_artefact_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "model.rknn"
    path.write_bytes(content)
    with pytest.raises(artefact.BadArtefact, match=re.escape(words)):
        artefact.read(path)
