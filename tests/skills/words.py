"""What the adapters make of the vendors' words that a skill quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
from onnx import helper

from runtimes.contract import Failure, Kind
from runtimes.kit import qualcomm
from runtimes.kit.work import Refused
from runtimes.openvino import failures as openvino
from runtimes.qairt import failures as qairt
from runtimes.rknn import failures as rknn
from runtimes.rknn import layers
from runtimes.tensorrt import failures as tensorrt
from tests.runtimes.openvino_jobs import FLOAT, make
from tests.skills.skill import ROOT

_TOLD = re.compile(r"(?:(?P<op>\w+) '(?P<node>[^']*)': )?(?P<code>[A-Z_]+): (?P<text>.*)")
_KILLED = re.compile(r"was killed by SIG[A-Z]+")
_RKNN_OPS: Mapping[str, str] = {"/n": "NonZero", "/r": "RandomNormalLike"}
_TENSORRT_NODES: Mapping[str, str] = {
    "/a/Conv": "Conv",
    "/the/NonMaxSuppression": "NonMaxSuppression",
    "/the/Attention": "Attention",
}


def quoted(cell: str) -> list[str]:
    """Return the texts that a cell quotes: those with a comma between them are several, all others belong together."""
    return ["\n".join(re.findall(r"`([^`]+)`", part)) for part in re.split(r"(?<=`), (?=`)", cell)]


def read(skill: str, words: str, folder: Path) -> Failure:
    """Return the failure that the adapter of `skill` makes of `words`."""
    return _READERS[skill](words, folder)


def _openvino(words: str, _folder: Path) -> Failure:
    return openvino.describe(RuntimeError(words))


def _tensorrt(words: str, _folder: Path) -> Failure:
    if (told := _TOLD.fullmatch(words)) and told["code"] in tensorrt.KINDS:
        each = tensorrt.Told(code=told["code"], text=told["text"], op=told["op"] or "", node=told["node"] or "")
        return tensorrt.of_parsing([each], [])
    return tensorrt.of_warnings([words], _TENSORRT_NODES) or tensorrt.of_building([words], _TENSORRT_NODES)


def _rknn(words: str, _folder: Path) -> Failure:
    if unlowered := layers.unlowered(words.splitlines()):
        return rknn.without_kernel(unlowered)
    if killed := _KILLED.search(words):
        return rknn.died("build", killed[0], [words], "", "")
    return rknn.describe("build", [], words, _RKNN_OPS)[0]


def _ortqnn(words: str, folder: Path) -> Failure:
    model = folder / "model.onnx"
    if killed := _KILLED.search(words):
        return Failure(kind=Kind.CRASH, message=killed[0])
    if "at most" in words:
        onnx.save(_deep(), model)
        return _holding(words, qualcomm._describe("error code 3110", model, [qualcomm.Node(name="/t", op="Transpose")]))
    relu = helper.make_node("Relu", ["x"], ["y"], "/r")
    sizes: list[int | str] = ["batch", 3, 8, 8]
    onnx.save(make([relu], [("x", FLOAT, sizes)], [("y", FLOAT, sizes)]).model, model)
    if "sizes must be known" in words:
        try:
            qualcomm.check_static(model)
        except Refused as error:
            return _holding(words, error.failure)
    return qualcomm._describe(words, model, qualcomm.refused_in(words))


def _qairt(words: str, folder: Path) -> Failure:
    if "Unsupported nodes" in words or "at most" in words or "sizes must be known" in words:
        return _ortqnn(words, folder)
    if found := re.fullmatch(r"wrote \d+ (containers)", words):
        source = (ROOT / "runtimes" / "qairt" / "ir.py").read_text(encoding="utf-8")
        line = source[: source.index(f"}} {found[1]}")]
        return Failure(kind=Kind[line.rpartition("Kind.")[2].partition(",")[0]], message=words)
    return qairt.describe(words, folder / "none.onnx")


def _aipc(words: str, _folder: Path) -> Failure:
    source = (ROOT / "runtimes" / "reference" / "gates.py").read_text(encoding="utf-8")
    gate = re.match(r"gate (\w+): ", words)
    known = gate is not None and f'"{gate[1]}"' in source
    return Failure(kind=Kind.INVALID_MODEL if known else Kind.ADAPTER, message=words)


def _deep() -> onnx.ModelProto:
    node = helper.make_node("Transpose", ["x"], ["a"], "/t", perm=[5, 4, 3, 2, 1, 0])
    return make([node], [("x", FLOAT, [2] * 6)], [("a", FLOAT, [2] * 6)]).model


def _holding(words: str, failure: Failure) -> Failure:
    """Return `failure`, or one that fits nothing where its message is not what is quoted."""
    return failure if words in failure.message else Failure(kind=Kind.ADAPTER, message=failure.message)


_READERS: Mapping[str, Callable[[str, Path], Failure]] = {
    "aipc": _aipc,
    "openvino": _openvino,
    "ortqnn": _ortqnn,
    "qairt": _qairt,
    "rknn": _rknn,
    "tensorrt": _tensorrt,
}
