"""What the two Qualcomm runtimes share: ONNX Runtime with its QNN plugin, opened strictly.

ONNX Runtime gives nodes that the plugin does not take to the CPU without a word, and then every comparison passes: a
session is opened here only with that forbidden, and what the session says of each node is read and compared.
Why a node is not taken stands in the log alone, which is written by C to the file descriptors: `captured` keeps it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from runtimes.contract import Failure, Kind
from runtimes.kit.work import Failed, Refused, fail, refuse
from runtimes.kit.worker import flush

PLUGIN = "QNNExecutionProvider"
PACKAGES = ("onnxruntime", "onnxruntime-qnn")
MAX_RANK = 5
"""QNN's tensors have at most so many dimensions; of a sixth the log says no more than `error code 3110`."""

_INFO = 1
"""ONNX Runtime's log severity at which the plugin says all that it knows."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ (?=\[[WEF]:)")
"""When a warning, an error or something fatal was logged; it would make equal failures differ."""
_NOISE = re.compile(r"File mapped weights feature is only available|EPContext encryption config unavailable")
"""Warnings of every session on this kind of machine."""
_UNSUPPORTED = re.compile(r"\{ name: (?P<node>[^{}]*), type: (?P<op>[^{},]+) \}")
_INVALID = re.compile(r"failed for node `(?P<node>[^`]*)` of type `(?P<op>[^`]+)`")
_LEFT_OVER = re.compile(r"Node '(?P<node>[^']*)' OpType:(?P<op>\S+) with domain:\S+ was inserted using the NHWC format")
_UNLOADED = re.compile(r"Load model from .* failed:|External data path validation failed")
"""ONNX Runtime does not take the file, before any provider has seen it."""
_UNKNOWN_OP = re.compile(r"Fatal error: (?P<op>\S+?)\(-?\d+\) is not a registered function/op")
_OPSET = "support for models stamped with official released onnx opset"
_FALLBACK = "fallback to CPU EP has been explicitly disabled"
_COPY = re.compile(r"_token_\d+$")
"""What ONNX Runtime hangs on the name of a node when it changes the layout."""
_INLINED = re.compile(r"_inlfunc_([A-Za-z]+)_")
"""Tensors of an operator that ONNX Runtime has replaced by its definition; the nodes of that are in no model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a graph, by its name and its operator type."""

    name: str
    op: str

    def __str__(self) -> str:
        return f"{self.op} {self.name!r}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opened:
    """A session all of whose nodes the plugin runs.

    Attributes:
        session: ONNX Runtime's InferenceSession.
        nodes: what the plugin runs, after ONNX Runtime's own changes of the graph.
    """

    session: Any
    nodes: tuple[Node, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeepTensor:
    """A tensor of more dimensions than QNN takes, and the first node that makes or takes it."""

    name: str
    rank: int
    node: Node


def versions() -> Mapping[str, str]:
    """Return what does the work, and the release of QNN that the plugin brings."""
    from onnxruntime_qnn import build_and_package_info

    return {**{name: metadata.version(name) for name in PACKAGES}, "qnn": str(build_and_package_info.qnn_version)}


@contextlib.contextmanager
def captured(log: Path) -> Iterator[None]:
    """Write all that is printed meanwhile, also from C, to `log` too.

    A process of its own copies it, so that nothing is lost when a library ends this one.
    """
    flush()
    kept = [os.dup(number) for number in (1, 2)]
    with subprocess.Popen(("tee", "-a", "--", str(log)), stdin=subprocess.PIPE, stdout=kept[1]) as tee:
        if tee.stdin is None:
            raise TypeError("tee: has no input; it was asked for one")
        for number in (1, 2):
            os.dup2(tee.stdin.fileno(), number)
        try:
            yield
        finally:
            flush()
            for number, before in zip((1, 2), kept, strict=True):
                os.dup2(before, number)
                os.close(before)


def open_session(model: Path, backend: Mapping[str, str], entries: Mapping[str, str], log: Path) -> Opened:
    """Return a session on `model` whose every node the plugin runs, and none the CPU.

    Args:
        model: an ONNX file.
        backend: the plugin's options, like {"backend_type": "htp", "soc_model": "57"}.
        entries: session options, like {"ep.context_enable": "1"}.
        log: where the vendor's log goes; a new file.

    Raises:
        Refused: a node is not taken: the first one, its operator, and the vendor's words.
        Failed: anything else, in the vendor's words.
    """
    strict = {**entries, "session.disable_cpu_ep_fallback": "1"}
    try:
        with captured(log):
            session = _start(model, backend, strict)
    except _raised() as error:
        words = _words(str(error), read_log(log))
        failure = _describe(words, model, _refused_nodes(words, model, backend, log))
        raise (Refused if failure.kind is Kind.UNSUPPORTED_OP else Failed)(failure) from error
    check_providers(session)
    return Opened(session=session, nodes=_taken(session))


@contextlib.contextmanager
def vendor_errors() -> Iterator[None]:
    """Turn what ONNX Runtime raises, while a session runs, into `Failed` with its words."""
    try:
        yield
    except _raised() as error:
        raise Failed(Failure(kind=Kind.TOOLCHAIN, message=str(error))) from error


def check_providers(session: Any) -> None:
    """Refuse a session in which the plugin does not stand first: ONNX Runtime fell back to another provider.

    Raises:
        Failed: it does not.
    """
    found = list(session.get_providers())
    if found[:1] != [PLUGIN]:
        fail(Kind.TOOLCHAIN, f"{PLUGIN} was asked for, but ONNX Runtime uses {', '.join(found)}")


def read_log(log: Path) -> str:
    """Return what was captured, without colours."""
    return _COLOUR.sub("", log.read_text(encoding="utf-8", errors="backslashreplace"))


def complaints(text: str) -> list[str]:
    """Return the warnings and errors of a log, each once, in the vendor's words and without the time of day."""
    lines = (_STAMP.sub("", line).strip() for line in text.splitlines() if _STAMP.match(line))
    return list(dict.fromkeys(line for line in lines if not _NOISE.search(line)))


def refused_in(text: str) -> list[Node]:
    """Return the nodes that a log says are not taken, each once, in its order."""
    found = [
        Node(name=match["node"], op=match["op"])
        for line in text.splitlines()
        if "Unsupported nodes in QNN EP" in line
        for match in _UNSUPPORTED.finditer(line)
    ]
    # Where no node at all is taken, there is no such line; there may be those of single nodes.
    singles = (Node(name=m["node"], op=m["op"]) for rule in (_INVALID, _LEFT_OVER) for m in rule.finditer(text))
    return list(dict.fromkeys(found or singles))


def read_graph(source: Path) -> Any:
    """Return the graph of an ONNX file, without the weights beside it.

    Raises:
        Failed: it is no ONNX.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return onnx.load(source, load_external_data=False).graph
    except DecodeError as error:
        hint = "check the file with `aipc inspect`"
        raise Failed(Failure(kind=Kind.INVALID_MODEL, message=f"{source.name}: {error}", hint=hint)) from error


def check_static(source: Path) -> None:
    """Refuse an ONNX file that leaves a size of an input open: QNN gives every node of it to the CPU.

    Raises:
        Failed: it is no ONNX.
        Refused: a size is open.
    """
    graph = read_graph(source)
    constant = {weight.name for weight in graph.initializer}
    for value in graph.input:
        sizes = value.type.tensor_type.shape.dim
        if value.name not in constant and any(not size.HasField("dim_value") for size in sizes):
            shape = (str(size.dim_value) if size.HasField("dim_value") else size.dim_param or "?" for size in sizes)
            refuse(
                Kind.DYNAMIC_SHAPE,
                f"{source.name}: input {value.name!r} has the shape [{', '.join(shape)}]; sizes must be known",
                hint="export the model with fixed shapes",
                node=value.name,
            )


def deep_tensors(model: Path) -> list[DeepTensor]:
    """Return the tensors of an ONNX file that have more than `MAX_RANK` dimensions, in the order of its nodes."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(model, load_external_data=False), data_prop=True).graph
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
        if value.type.tensor_type.HasField("shape")
    }
    ranks |= {weight.name: len(weight.dims) for weight in graph.initializer}
    found: dict[str, DeepTensor] = {}
    for node in graph.node:
        for name in (*node.input, *node.output):
            if ranks.get(name, 0) > MAX_RANK:
                found.setdefault(
                    name, DeepTensor(name=name, rank=ranks[name], node=Node(name=node.name, op=node.op_type))
                )
    return list(found.values())


def _raised() -> tuple[type[Exception], ...]:
    """Return what ONNX Runtime raises; MemoryError must pass."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    # They have no base of their own.
    named = (value for value in vars(state).values() if isinstance(value, type) and issubclass(value, Exception))
    return (*named, RuntimeError, ValueError)


@functools.cache
def _devices() -> tuple[Any, ...]:
    """Return the plugin's devices; the plugin is registered once in a process."""
    import onnxruntime
    import onnxruntime_qnn

    onnxruntime.register_execution_provider_library(PLUGIN, onnxruntime_qnn.get_library_path())
    return tuple(device for device in onnxruntime.get_ep_devices() if device.ep_name == PLUGIN)


def _start(model: Path, backend: Mapping[str, str], entries: Mapping[str, str]) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = _INFO
    for key, value in {**entries, "session.record_ep_graph_assignment_info": "1"}.items():
        settings.add_session_config_entry(key, value)
    settings.add_provider_for_devices(list(_devices()), dict(backend))
    session = onnxruntime.InferenceSession(str(model), settings)
    session.disable_fallback()
    return session


def _assigned(session: Any) -> dict[str, list[Node]]:
    """Return the nodes of a session by the provider that runs them."""
    found: dict[str, list[Node]] = {}
    for part in session.get_provider_graph_assignment_info():
        nodes = [Node(name=_COPY.sub("", node.name), op=node.op_type) for node in part.get_nodes()]
        found.setdefault(part.ep_name, []).extend(nodes)
    return found


def _taken(session: Any) -> tuple[Node, ...]:
    """Return the nodes that the plugin runs; a node that anything else runs is a failure."""
    assigned = _assigned(session)
    for provider in assigned.keys() - {PLUGIN}:
        nodes = assigned[provider]
        message = f"{provider} runs {', '.join(map(str, nodes))}, though nothing but {PLUGIN} may run"
        fail(Kind.UNSUPPORTED_OP, message, op=nodes[0].op, node=nodes[0].name)
    if not assigned.get(PLUGIN):
        fail(Kind.TOOLCHAIN, f"the session names no node that {PLUGIN} runs; where the model runs is not known")
    return tuple(assigned[PLUGIN])


def _words(error: str, log: str) -> str:
    """Return the vendor's exception and the warnings and errors of its log that say more."""
    said = (line for line in complaints(log) if line.partition("] ")[2] not in error)
    return "\n".join((error, *said))


def _refused_nodes(words: str, model: Path, backend: Mapping[str, str], log: Path) -> list[Node]:
    """Return the nodes that are not taken, in the order of the model."""
    found = refused_in(words)
    if not found and _FALLBACK in words:
        # Nobody says which, so the same is asked of a session that may use the CPU.
        with captured(log):
            assigned = _assigned(_start(model, backend, {}))
        found = [node for provider, nodes in assigned.items() if provider != PLUGIN for node in nodes]
    known = _nodes_of(model)
    named = {_original(node.name, known) for node in found}
    inlined = set(_INLINED.findall(words))
    # What is in no model is a part of something that is, or ONNX Runtime's own.
    return (
        [node for name, node in known.items() if name in named]
        or [node for node in known.values() if node.op in inlined]
        or found
    )


def _describe_loading(words: str) -> Failure:
    """Return the failure of a session that names no node: ONNX Runtime may not take the file at all."""
    if _OPSET in words:
        hint = "export the model in an opset that ONNX Runtime has"
        return Failure(kind=Kind.UNSUPPORTED_OPSET, message=words, hint=hint)
    if unknown := _UNKNOWN_OP.search(words):
        return Failure(kind=Kind.UNSUPPORTED_OP, message=words, op=unknown["op"])
    if _UNLOADED.search(words):
        return Failure(kind=Kind.INVALID_MODEL, message=words, hint="check the file with `aipc inspect`")
    return Failure(kind=Kind.TOOLCHAIN, message=words)


def _nodes_of(model: Path) -> dict[str, Node]:
    """Return the nodes of an ONNX file by name, in its order; none of a file that is no ONNX."""
    try:
        graph = read_graph(model)
    except Failed:
        return {}
    return {node.name: Node(name=node.name, op=node.op_type) for node in graph.node}


def _original(name: str, known: Mapping[str, Node]) -> str:
    """Return the name in the model of a node that ONNX Runtime or QNN has numbered."""
    stripped = re.sub(r"(_token_\d+|_\d+)+$", "", name)
    return name if name in known or stripped not in known else stripped


def _describe(words: str, model: Path, nodes: Sequence[Node]) -> Failure:
    if not nodes:
        return _describe_loading(words)
    refused = {node.name for node in nodes}
    if deep := [tensor for tensor in deep_tensors(model) if tensor.node.name in refused]:
        listed = ", ".join(f"{tensor.name!r} of {tensor.node} has {tensor.rank}" for tensor in deep)
        return Failure(
            kind=Kind.UNSUPPORTED_OP,
            message=f"QNN takes tensors of at most {MAX_RANK} dimensions, but {listed}\n{words}",
            hint="write the same with fewer dimensions: reshape, or split along one of them",
            op=deep[0].node.op,
            node=deep[0].node.name,
        )
    return Failure(
        kind=Kind.UNSUPPORTED_OP,
        message=f"{PLUGIN} does not take {', '.join(map(str, nodes))}\n{words}",
        op=nodes[0].op,
        node=nodes[0].name,
    )
