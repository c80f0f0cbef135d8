"""The artefact as it lies on the disk: read back after it was written, by ONNX and not by what wrote it.

A session says what it was opened on; what it saved may be something else. `multi`, which the emulator does not load,
has no other witness.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runtimes.contract import Kind
from runtimes.kit import qualcomm
from runtimes.kit.ports import Port, differences
from runtimes.kit.socs import SOCS, Soc
from runtimes.kit.work import fail

CONTEXT = "model_ctx.onnx"
OP, DOMAIN = "EPContext", "com.microsoft"
_MEMBER = re.compile(r"htp\.cache\.(?P<soc>[^.]+)\.\d+")
"""In the zip file that a binary for several SoCs is, what belongs to one of them."""


def check(artifact: Path, inputs: Sequence[Port], outputs: Sequence[Port], socs: Sequence[Soc]) -> None:
    """Refuse an artefact that is not what was asked for.

    Args:
        artifact: its folder.
        inputs: what the model takes.
        outputs: what it gives.
        socs: whom it is for.

    Raises:
        Failed: a file is missing or empty, something is calculated outside of the contexts, or inputs, outputs or SoCs
            are others.
    """
    if not (artifact / CONTEXT).is_file():
        fail(Kind.MISSING_RESULT, f"ONNX Runtime reported success, but wrote no {CONTEXT}")
    graph = qualcomm.read_graph(artifact / CONTEXT)
    _check_nodes(graph)
    _check_ports(graph, inputs, outputs)
    names = [name for node in graph.node if (name := _binary(node))]
    if not names or not all((artifact / name).is_file() and (artifact / name).stat().st_size for name in names):
        fail(Kind.MISSING_RESULT, f"ONNX Runtime reported success, but wrote no context binary beside {CONTEXT}")
    for name in dict.fromkeys(names):
        _check_socs(artifact / name, socs)


def _check_nodes(graph: Any) -> None:
    """Refuse a graph with more than contexts: then something of the model is calculated outside of them."""
    for node in graph.node:
        if (node.op_type, node.domain) != (OP, DOMAIN):
            message = f"{CONTEXT} holds {qualcomm.Node(name=node.name, op=node.op_type)} beside its context"
            fail(Kind.TOOLCHAIN, message, op=node.op_type, node=node.name)
    if not graph.node:
        fail(Kind.MISSING_RESULT, f"{CONTEXT} holds no context")


def _check_ports(graph: Any, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    wrong = differences("input", inputs, list(_ports(graph.input)))
    wrong += differences("output", outputs, list(_ports(graph.output)))
    for side, asked, values in (("inputs", inputs, graph.input), ("outputs", outputs, graph.output)):
        found = [value.name for value in values]
        if not wrong and found != [port.name for port in asked]:
            wrong.append(f"its {side} stand in the order {', '.join(found)}")
    if wrong:
        fail(Kind.TOOLCHAIN, f"{CONTEXT} is not the model that was asked for: {'; '.join(wrong)}")


def _ports(values: Sequence[Any]) -> Iterator[Port]:
    from onnx import helper

    for value in values:
        tensor = value.type.tensor_type
        shape = tuple(size.dim_value if size.HasField("dim_value") else -1 for size in tensor.shape.dim)
        yield Port(name=value.name, shape=shape, dtype=helper.tensor_dtype_to_np_dtype(tensor.elem_type).name)


def _binary(node: Any) -> str:
    """Return the name of the file that holds a context, "" for one of the file of another node."""
    found = {attribute.name: attribute for attribute in node.attribute}
    return str(found["ep_cache_context"].s.decode()) if "ep_cache_context" in found else ""


def _check_socs(binary: Path, socs: Sequence[Soc]) -> None:
    """Refuse a binary for other SoCs: one for several is a zip file with a member for each, else it is stamped."""
    asked = {soc.name for soc in socs}
    if zipfile.is_zipfile(binary):
        with zipfile.ZipFile(binary) as archive:
            found = {match["soc"] for name in archive.namelist() if (match := _MEMBER.fullmatch(name))}
    else:
        content = binary.read_bytes()
        found = {soc.name for soc in SOCS.values() if soc.stamp.encode() in content}
    if found != asked:
        told = ", ".join(sorted(found)) or "no SoC that is known"
        fail(Kind.MISSING_RESULT, f"{binary.name} is for {told}, not for {', '.join(sorted(asked))}")
