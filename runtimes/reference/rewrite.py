"""The step `rewrite`: change an ONNX graph so that a runtime takes it, and see that its answers stay what they were.

What a rewrite makes goes through the gates of every ONNX file, keeps the names, order, shapes and types of inputs and
outputs, and is compared by ONNX Runtime with the golden outputs and with the answers of the model before.
"""

from __future__ import annotations

import collections
import dataclasses
import shutil
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from runtimes.contract import Failure, Json, Kind, suggest
from runtimes.kit import tensors
from runtimes.kit.work import Failed, Refused, Work, fail, refuse
from runtimes.reference import differences, edits, export, exporters, external, gates, ranges, rewrites, structure
from runtimes.reference.export import Comparison, Tolerance
from runtimes.reference.inputs import Samples
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable

MODEL = "model.onnx"
MADE = "made"
"""The optional input: a model that was rewritten elsewhere, which is checked here and taken over."""

TOLERANCES: Mapping[str, Tolerance] = types.MappingProxyType(
    {
        "fp32": export.EXACT,
        "fp16": Tolerance(cosine=0.999, snr_db=30.0),
        "int8": Tolerance(cosine=0.95, snr_db=20.0, beside_strongest=True),
    }
)
"""How near answers must come to the golden ones and to those before, by precision; from the tightest."""

LEAN_BYTES = 2**30
"""From this size on the step spares memory: ONNX Runtime calculates slice by slice, with nothing optimised."""

_QUANTISED = frozenset(
    {
        *("QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"),
        *("QLinearConv", "QLinearMatMul"),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """A rewrite by name, and its options."""

    name: str
    options: Mapping[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewriteOptions:
    """What `rewrite` is told: what to do, in order.

    Attributes:
        rewrites: by name; where the input `made` is there, what they made already, elsewhere.
        precision: of what is `made`, as a rewrite's.
    """

    rewrites: tuple[Chosen, ...]
    precision: str = "fp32"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """What the rewritten model is tried on; all empty for a file that is not prepared yet.

    Attributes:
        samples: sample name to inputs by name.
        golden: sample name to the reference's outputs by name.
        calibration: as samples, to measure ranges on; empty where nothing is to be quantised.
    """

    samples: Samples
    golden: Samples
    calibration: Samples = dataclasses.field(default_factory=dict)


def rewrite(work: Work) -> dict[str, Json]:
    """Make `model`, and `cpu` where there are samples; return the facts of the export and what was changed.

    Without samples the file is not prepared yet: then nothing is compared, and sizes may be open.

    Raises:
        Refused: there is no rewrite of that name, or one cannot be done on this graph.
        Failed: the model that they made does not hold.
    """
    options = work.options(RewriteOptions)
    is_made = MADE in work.job.inputs
    steps = [(_made(each.name, options.precision) if is_made else _find(each.name), each) for each in options.rewrites]
    trial = _trial(work)
    source, folder = work.input("model") / MODEL, work.output("model")
    folder.mkdir()
    _stop_unless(gates.check(source, [gate for gate in gates.ALL if gate.stage == 0]), "the file to rewrite")
    if is_made:
        changed = _adopt(work.input(MADE) / MODEL, source, folder / MODEL, steps)
    else:
        changed = apply(source, folder / MODEL, steps, trial, work)
    names = ", ".join(name for name, nodes in changed.items() if nodes) or "no change"
    path = folder / MODEL
    work.progress("checking the rewritten file, and ONNX Runtime on every sample")
    results = gates.check(path, gates.ALL if trial.samples else gates.without("static_shapes", of=gates.ALL))
    _stop_unless(results, f"what {names} made")
    _keep_contract(gates.parse(source), gates.parse(path), names)
    compared = _compare(source, path, steps, trial, names)
    if trial.samples:
        tensors.save_samples(work.output("cpu"), compared.answers)
    model = gates.parse(path)
    return {
        "opset": structure.opset_of(model),
        "ir_version": model.ir_version,
        "nodes": dict(sorted(collections.Counter(node.op_type for node in structure.nodes_of(model)).items())),
        "gates": [
            {"name": result.name, "passed": result.passed, "detail": result.detail}
            for result in (*results, *compared.results)
        ],
        "agreement": {name: dataclasses.asdict(each) for name, each in compared.golden.agreement.items()},
        "size_bytes": _size_bytes(folder),
        "changed": changed,
    }


def apply(
    source: Path, target: Path, steps: Sequence[tuple[Rewrite, Chosen]], trial: Trial, work: Work
) -> dict[str, list[str]]:
    """Rewrite the model at `source` to `target`; return what each rewrite replaced.

    Where none replaced anything, the file is copied as it is.

    Raises:
        Refused: a rewrite cannot be done on this graph.
        Failed: one did not do what it promises.
    """
    proto = gates.parse(source)
    changed = {each.name: _mend(each, proto) for each, _chosen in steps}
    model = read(proto, source.parent)
    edits.infer(model)
    for each, chosen in steps:
        work.progress(f"rewriting: {each.summary}")
        given = Given(options=chosen.options, samples=trial.samples, calibration=trial.calibration)
        changed[each.name] += _change(each, model, given)
        if changed[each.name]:
            edits.tidy(model)
        if left := _left_undone(each, model):
            fail(Kind.REWRITE, f"rewrite {each.name}: it did not do what it promises: {left}")
    if any(changed.values()):
        save(model, target, outside=bool(external.locations(proto)))
    else:
        shutil.copytree(source.parent, target.parent, dirs_exist_ok=True)
    return changed


def _made(name: str, precision: str) -> Rewrite:
    if precision not in TOLERANCES:
        refuse(Kind.OPTION, f"precision {precision!r}: there is none{suggest(precision, TOLERANCES)}")
    return Rewrite(
        name=name,
        summary="made elsewhere",
        requires=rewrites.always,
        rewrite=lambda _model, _given: [],
        ensures=rewrites.always,
        precision=precision,
    )


def _adopt(made: Path, source: Path, target: Path, steps: Sequence[tuple[Rewrite, Chosen]]) -> dict[str, list[str]]:
    """Copy the model that was made elsewhere to `target`; return what differs from the one at `source`.

    Raises:
        Failed: it is no ONNX file, or holds data that lies outside its folder.
    """
    _stop_unless(gates.check(made, [gate for gate in gates.ALL if gate.stage == 0]), "what was made elsewhere")
    shutil.copytree(made.parent, target.parent, dirs_exist_ok=True)
    changed = differences.between(gates.parse(source), gates.parse(made), source.parent, made.parent)
    return {each.name: changed for each, _chosen in steps}


def save(model: ir.Model, path: Path, *, outside: bool) -> None:
    """Write `model` to `path`; weights to a file beside it where they were in one, or where a protobuf has no room.

    Tensors are written one after the other, so that those which lie outside are never all in memory.
    """
    held = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    size = sum(tensor.nbytes for tensor in held if tensor is not None)
    beside = exporters.DATA if outside or size > exporters.LARGEST_BYTES else None
    ir.save(model, path, external_data=beside)


def _find(name: str) -> Rewrite:
    try:
        return rewrites.find(name)
    except LookupError as error:
        refuse(Kind.OPTION, str(error.args[0]))


def _trial(work: Work) -> Trial:
    found = {
        name: tensors.load_samples(work.input(name)) if name in work.job.inputs else {}
        for name in ("samples", "golden", "calibration")
    }
    return Trial(**found)


def _mend(each: Rewrite, proto: onnx.ModelProto) -> list[str]:
    try:
        return each.mend(proto) if each.mend else []
    except Unsuitable as error:
        raise _cannot(each, str(error)) from error


def _change(each: Rewrite, model: ir.Model, given: Given) -> list[str]:
    try:
        why = each.requires(model)
        changed = [] if why else each.rewrite(model, given)
    except Unsuitable as error:
        raise _cannot(each, str(error)) from error
    if why:
        raise _cannot(each, why)
    return changed


def _cannot(each: Rewrite, why: str) -> Refused:
    """Return what says that a rewrite cannot be done on this graph, and at which node."""
    node, op = edits.called(why)
    return Refused(Failure(kind=Kind.REWRITE, message=f"rewrite {each.name}: {why}", op=op, node=node))


def _left_undone(each: Rewrite, model: ir.Model) -> str:
    try:
        return each.ensures(model)
    except Unsuitable as error:
        return str(error)


def read(proto: onnx.ModelProto, folder: Path) -> ir.Model:
    """Return the graph of `proto`; data outside it stays there until it is needed.

    Raises:
        Failed: onnx_ir does not take it.
    """
    try:
        model = ir.serde.deserialize_model(proto)
    except ir.serde.SerdeError as error:
        said = f"{error.__cause__ or error}"
        raise Failed(Failure(kind=Kind.REWRITE, message=f"onnx_ir does not read the file: {said}")) from error
    ir.external_data.set_base_dir(model.graph, folder)
    return model


def _keep_contract(before: onnx.ModelProto, after: onnx.ModelProto, names: str) -> None:
    """Fail where inputs or outputs are not what they were; a size that was open may have become a number."""
    for word, old, new in (
        ("inputs", structure.inputs_of(before.graph), structure.inputs_of(after.graph)),
        ("outputs", list(before.graph.output), list(after.graph.output)),
    ):
        if len(old) != len(new) or not all(_same(*pair) for pair in zip(old, new, strict=True)):
            was, became = (", ".join(_show(value) for value in values) for values in (old, new))
            fail(Kind.REWRITE, f"{names}: the {word} were {was}, and are {became}; a rewrite must leave them alone")


def _same(old: onnx.ValueInfoProto, new: onnx.ValueInfoProto) -> bool:
    if old.name != new.name or old.type.tensor_type.elem_type != new.type.tensor_type.elem_type:
        return False
    sizes, others = structure.sizes_of(old), structure.sizes_of(new)
    if sizes is None or others is None:
        return sizes is None
    return len(sizes) == len(others) and all(
        isinstance(size, str) or size == other for size, other in zip(sizes, others, strict=True)
    )


def _show(value: onnx.ValueInfoProto) -> str:
    kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    return f"{value.name} {kind} {structure.sizes_of(value)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Compared:
    golden: Comparison
    answers: Samples
    results: tuple[gates.GateResult, ...]


def _compare(source: Path, path: Path, steps: Sequence[tuple[Rewrite, Chosen]], trial: Trial, names: str) -> _Compared:
    """Return how near the rewritten model comes to the golden outputs.

    Raises:
        Failed: it does not come near enough to them or to the model before it, or leaves the range of float16.
    """
    if not trial.samples:
        return _Compared(golden=Comparison(agreement={}, problems=()), answers={}, results=())
    order = list(TOLERANCES)
    precision = max([_precision(source), *(each.precision for each, _chosen in steps)], key=order.index)
    tolerance = TOLERANCES[precision]
    results = []
    lean = any(_size_bytes(each.parent) > LEAN_BYTES for each in (source, path))
    answers = before = export.answer(path, trial.samples, trial.golden, lean=lean)
    if source.read_bytes() != path.read_bytes():
        results.append(_result("fp16_range", ranges.find_overflow(path, trial.samples)))
        before = export.answer(source, trial.samples, trial.golden, lean=lean)
    golden = export.compare(trial.golden, answers, "the reference", tolerance)
    results.append(_result("agreement", [*golden.problems]))
    neutral = export.compare(before, answers, "the model before the rewrite", tolerance)
    results.append(_result("neutral", [*neutral.problems]))
    _stop_unless(results, f"what {names} made")
    return _Compared(golden=golden, answers=answers, results=tuple(results))


def _size_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _precision(path: Path) -> str:
    """Return the precision that a model has already: its answers are as near to golden ones as that allows."""
    model = gates.parse(path)
    if any(node.op_type in _QUANTISED for node in structure.nodes_of(model)):
        return "int8"
    return "fp16" if ranges.has_halves(model) else "fp32"


def _result(name: str, problems: list[str]) -> gates.GateResult:
    return gates.GateResult(name=name, passed=not problems, detail="; ".join(problems), kind=Kind.REWRITE)


def _stop_unless(results: Sequence[gates.GateResult], what: str) -> None:
    if all(results):
        return
    fail(Kind.REWRITE, f"{what} does not hold: {gates.describe(results)}")
