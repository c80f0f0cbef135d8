"""What an ONNX file must be before any runtime sees it: a list of gates, each a pure function, each with a name.

Runtimes let different defects through, some of them silently; the gates let none through, and say which node it is.
They come in stages, and a stage runs only when the one before it found nothing: data outside the file is looked at
before anything loads it, and the engines (onnx's checker, ONNX Runtime) meet no graph that is malformed.

Each gate but three finds something that nothing else here does. What `ir_version`, `ssa` and `order` find, onnx's
checker would refuse as well; they are there because they say it better: what is known, which two nodes, what to do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, ParamSpec

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from runtimes.contract import Kind
from runtimes.kit.work import Failed
from runtimes.reference import external, foreign, sessions, structure

P = ParamSpec("P")

SHOWN = 5
"""How many problems of one gate are told; the others are counted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate(Generic[P]):
    """One condition on what it is asked about: an ONNX file here, a file and what it was made of in `export`.

    Attributes:
        name: what it is called in a report, and left out by.
        stage: 0 for the file, 1 for the graph, 2 for the engines, later ones for what the file was made of.
        kind: what sort of failure it is when it does not hold.
        find: returns what is wrong, one sentence each; here from the model (data outside the file not loaded) and its
            path.
        hint: what to do where a sentence does not say it.
    """

    name: str
    stage: int
    kind: Kind
    find: Callable[P, list[str]]
    hint: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateResult:
    """What a gate found; true when it holds.

    Attributes:
        name: the gate's.
        passed: whether the file is let through.
        detail: what is wrong; "" where nothing is.
        kind: what sort of failure it is; None where it is none.
        hint: what to do where the detail does not say it.
    """

    name: str
    passed: bool
    detail: str
    kind: Kind | None = None
    hint: str = ""

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
    """Return what ONNX Runtime says when it opens the file with nothing optimised: it is the one that checks types.

    Raises:
        Failed: there is no memory left, which is not the file's fault.
    """
    try:
        sessions.start(path, optimised=False)
    except sessions.errors() as error:
        if failure := foreign.out_of_memory(error, "ONNX Runtime"):
            raise Failed(failure) from error
        return [f"ONNX Runtime: {error}"]
    return []


ALL: tuple[Gate[[onnx.ModelProto, Path]], ...] = (
    Gate(name="readable", stage=0, kind=Kind.INVALID_MODEL, find=find_unreadable),
    Gate(name="external_data", stage=0, kind=Kind.INVALID_MODEL, find=external.find_misplaced),
    Gate(name="ir_version", stage=1, kind=Kind.UNSUPPORTED_OPSET, find=structure.find_unknown_ir_version),
    Gate(name="opset", stage=1, kind=Kind.UNSUPPORTED_OPSET, find=structure.find_unknown_opset),
    Gate(name="operators", stage=1, kind=Kind.UNSUPPORTED_OP, find=structure.find_unknown_operators),
    Gate(name="node_names", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_bad_node_names),
    Gate(name="value_names", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_repeated_value_names),
    Gate(name="ssa", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_written_twice),
    Gate(name="order", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_out_of_order),
    Gate(name="static_shapes", stage=1, kind=Kind.DYNAMIC_SHAPE, find=structure.find_open_sizes),
    Gate(name="wide_integers", stage=1, kind=Kind.INVALID_MODEL, find=structure.find_wide_integers),
    Gate(name="checker", stage=2, kind=Kind.INVALID_MODEL, find=find_unchecked),
    Gate(name="session", stage=2, kind=Kind.INVALID_MODEL, find=find_unloadable),
)
"""Every gate, in order."""


def without(*names: str, of: Sequence[Gate[P]]) -> tuple[Gate[P], ...]:
    """Return the gates `of` but those called `names`.

    Raises:
        ValueError: there is no such gate.
    """
    unknown = set(names) - {gate.name for gate in of}
    if unknown:
        raise ValueError(f"gates: no gate {sorted(unknown)}; known are {[gate.name for gate in of]}")
    return tuple(gate for gate in of if gate.name not in names)


def check(path: Path, gates: Sequence[Gate[[onnx.ModelProto, Path]]] = ALL) -> list[GateResult]:
    """Return what `gates` found in the ONNX file at `path`; none of a stage behind one that did not hold."""
    return ask(gates, parse(path), path)


def ask(gates: Sequence[Gate[P]], *about: P.args, **named: P.kwargs) -> list[GateResult]:
    """Return what `gates` found in what they are asked about; none of a stage behind one that did not hold."""
    results: list[GateResult] = []
    for stage in sorted({gate.stage for gate in gates}):
        if not all(results):
            break
        results.extend(_result(gate, gate.find(*about, **named)) for gate in gates if gate.stage == stage)
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


def _result(gate: Gate[P], problems: list[str]) -> GateResult:
    if not problems:
        return GateResult(name=gate.name, passed=True, detail="")
    more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
    detail = "; ".join([*problems[:SHOWN], *more])
    return GateResult(name=gate.name, passed=False, detail=detail, kind=gate.kind, hint=gate.hint)
