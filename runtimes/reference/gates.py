"""What an ONNX file must be before any runtime sees it: a list of gates, each a pure function, each with a name.

Runtimes let different defects through, some of them silently; the gates let none through, and say which node it is.
They come in stages, and a stage runs only when the one before it found nothing: data outside the file is looked at
before anything loads it, and the engines (onnx's checker, ONNX Runtime) meet no graph that is malformed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from runtimes.contract import Kind
from runtimes.reference import external, sessions, structure

SHOWN = 5
"""How many problems of one gate are told; the others are counted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """One condition on an ONNX file.

    Attributes:
        name: what it is called in a report, and left out by.
        stage: 0 for the file, 1 for the graph, 2 for the engines.
        kind: what sort of failure it is when it does not hold.
        find: from the model (data outside the file not loaded) and its path to what is wrong, one sentence each.
    """

    name: str
    stage: int
    kind: Kind
    find: Callable[[onnx.ModelProto, Path], list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateResult:
    """What a gate found; true when it holds.

    Attributes:
        name: the gate's.
        passed: whether the file is let through.
        detail: what is wrong; "" where nothing is.
        kind: what sort of failure it is; None where it is none.
    """

    name: str
    passed: bool
    detail: str
    kind: Kind | None = None

    def __bool__(self) -> bool:
        return self.passed


def find_unreadable(model: onnx.ModelProto, path: Path) -> list[str]:
    """Return what is wrong with a file that gave no graph."""
    if model.HasField("graph") and model.graph.output:
        return []
    size = path.stat().st_size
    try:
        onnx.load_model_from_string(path.read_bytes())
    except DecodeError as error:
        return [f"{path.name} ({size} bytes) is no ONNX file, or is cut short: {error}; get it anew"]
    return [f"{path.name} ({size} bytes) holds no graph with outputs; it is no ONNX file, or is cut short; get it anew"]


def find_unchecked(_model: onnx.ModelProto, path: Path) -> list[str]:
    """Return what onnx's own checker says."""
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        return [f"onnx.checker: {error}"]
    return []


def find_unloadable(_model: onnx.ModelProto, path: Path) -> list[str]:
    """Return what ONNX Runtime says when it opens the file with nothing optimised: it is the one that checks types."""
    try:
        sessions.start(path, optimised=False)
    except sessions.errors() as error:
        return [f"ONNX Runtime: {error}"]
    return []


ALL: tuple[Gate, ...] = (
    Gate(name="readable", stage=0, kind=Kind.INVALID_MODEL, find=find_unreadable),
    Gate(name="external_data", stage=0, kind=Kind.INVALID_MODEL, find=external.find_misplaced),
    Gate(name="ir_version", stage=1, kind=Kind.UNSUPPORTED_OPSET, find=structure.find_unknown_ir_version),
    Gate(name="opset", stage=1, kind=Kind.UNSUPPORTED_OPSET, find=structure.find_unknown_opset),
    Gate(name="operators", stage=1, kind=Kind.UNSUPPORTED_OP, find=structure.find_unknown_operators),
    Gate(name="node_names", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_bad_node_names),
    Gate(name="value_names", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_repeated_value_names),
    Gate(name="ssa", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_written_twice),
    Gate(name="dangling", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_dangling),
    Gate(name="order", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_out_of_order),
    Gate(name="static_shapes", stage=1, kind=Kind.DYNAMIC_SHAPE, find=structure.find_open_sizes),
    Gate(name="wide_integers", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_wide_integers),
    Gate(name="checker", stage=2, kind=Kind.INVALID_MODEL, find=find_unchecked),
    Gate(name="session", stage=2, kind=Kind.INVALID_MODEL, find=find_unloadable),
)
"""Every gate, in order."""


def without(*names: str) -> tuple[Gate, ...]:
    """Return all gates but those called `names`.

    Raises:
        ValueError: there is no such gate.
    """
    unknown = set(names) - {gate.name for gate in ALL}
    if unknown:
        raise ValueError(f"gates: no gate {sorted(unknown)}; known are {[gate.name for gate in ALL]}")
    return tuple(gate for gate in ALL if gate.name not in names)


def check(path: Path, gates: Sequence[Gate] = ALL) -> list[GateResult]:
    """Return what `gates` found in the ONNX file at `path`; none of a stage behind one that did not hold."""
    model = parse(path)
    results: list[GateResult] = []
    for stage in sorted({gate.stage for gate in gates}):
        if not all(results):
            break
        results.extend(_result(gate, gate.find(model, path)) for gate in gates if gate.stage == stage)
    return results


def parse(path: Path) -> onnx.ModelProto:
    """Return the model in a file, data outside it not loaded; an empty one where it is no ONNX file."""
    try:
        return onnx.load_model_from_string(path.read_bytes())
    except DecodeError:
        return onnx.ModelProto()


def describe(results: Iterable[GateResult]) -> str:
    """Return what the gates that do not hold say, one line."""
    return "; ".join(f"gate {result.name}: {result.detail}" for result in results if not result)


def _result(gate: Gate, problems: list[str]) -> GateResult:
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    detail = "; ".join([*problems[:SHOWN], *more])
    return GateResult(name=gate.name, passed=not problems, detail=detail, kind=gate.kind if problems else None)
