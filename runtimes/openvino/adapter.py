"""The OpenVINO adapter: ONNX to OpenVINO IR (`model.xml` and `model.bin`), and running the IR on a device.

OpenVINO hides several failures, so nothing here is believed because no error came:

- a graph with sequences is hollowed out and comes back with other inputs: the IR is read back and compared;
- NNCF skips what it has no rule for: an IR in which nothing with weights is quantised is no int8 artefact;
- weights stay f32 without a word where it thinks better so: an IR none of whose weights is f16 is no fp16 artefact;
- the CPU plugin calculates in bf16 where the CPU can, and takes bf16 for f16: the hint is set, and read back;
- an inference request fills in missing inputs by itself, and casts wrong element types: inputs are compared first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from runtimes.contract import Json, Kind, Misused
from runtimes.kit import tensors
from runtimes.kit.ports import Port, differences
from runtimes.kit.work import Failed, Work, fail, refuse
from runtimes.openvino import execution, failures, quantization

DTYPES: Mapping[str, str] = {
    "boolean": "bool",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
"""OpenVINO's element types by numpy's names."""

NOT_OPERATORS = ("Parameter", "Constant", "Result")
WIDENING = ("Convert", "Subtract", "Multiply")
LAYOUT = "as in the ONNX model"
CALCULATION = "f32"
"""What every device is told to calculate in, whatever the weights are stored as: the judge compares with f32."""


class Precision(enum.StrEnum):
    """How the weights are stored; `int8` calculates in whole numbers too."""

    FP16 = "fp16"
    FP32 = "fp32"
    INT8 = "int8"


class Target(enum.StrEnum):
    """What the artefact is for."""

    CPU = "cpu"
    GPU = "gpu"
    NPU = "npu"

    @property
    def device(self) -> str:
        """OpenVINO's name of it."""
        return self.value.upper()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """What `convert` and `quantize` are told."""

    precision: Precision
    target: Target
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `run` is told; `precision` is what the artefact was asked in, and changes nothing here."""

    precision: Precision
    target: Target


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    return {name: metadata.version(name) for name in ("openvino", "nncf", "numpy")}


def convert(work: Work) -> Mapping[str, Json]:
    """Write `out/artifact/model.xml` and `model.bin` for `in/model/model.onnx`; equal inputs give equal bytes."""
    options = work.options(ConvertOptions)
    if options.precision is Precision.INT8:
        raise Misused("job.json: options: precision int8 needs the step quantize; ask for that")
    return _save(work, options, _import(work, options))


def quantize(work: Work) -> Mapping[str, Json]:
    """Write the same for int8, with ranges seen in `in/calibration`; what is not quantised is stored in fp16."""
    options = work.options(ConvertOptions)
    if options.precision is not Precision.INT8:
        raise Misused(f"job.json: options: precision {options.precision} needs no calibration; ask for convert")
    samples = tensors.load_samples(work.input("calibration"))
    model = _import(work, options)
    for sample, feeds in samples.items():
        _check_feeds("in/calibration", sample, "model", feeds, _ports(model.inputs))
    work.progress(f"quantising with {len(samples)} samples")
    plain = [] if quantization.is_controlled(model, len(samples)) else [quantization.PLAIN]
    with _vendor():
        model = quantization.quantize(model, samples, options.target.device)
    facts = _save(work, options, model)
    return {**facts, "notes": [*facts["notes"], *plain]}


def _import(work: Work, options: ConvertOptions) -> Any:
    """Return the model in `in/model`, its inputs and outputs called as they were asked for."""
    import openvino

    source = work.input("model") / "model.onnx"
    if not source.is_file():
        raise Misused("in/model: holds no model.onnx; export writes it")
    work.progress("reading the ONNX model")
    with _vendor():
        model = openvino.convert_model(source)
    _check_static(model)
    _name(model.inputs, options.inputs)
    _name(model.outputs, options.outputs)
    return model


def _save(work: Work, options: ConvertOptions, model: Any) -> Mapping[str, Json]:
    """Write the artefact, and return the facts of what it holds."""
    import openvino

    # Automatic names are numbered per process: the same nodes must be made before this each time.
    artifact = work.output("artifact")
    artifact.mkdir()
    work.progress("writing the IR")
    with _vendor():
        openvino.save_model(model, artifact / "model.xml", compress_to_fp16=options.precision is not Precision.FP32)
    del model
    work.progress("reading the IR back")
    core, devices = _open_core()
    saved = _read_back(core, artifact)
    inputs, outputs = _ports(saved.inputs), _ports(saved.outputs)
    _check_ports(options, inputs, outputs)
    if options.precision is Precision.INT8:
        quantized, weighted = quantization.count_operators(saved)
        _check_quantized(quantized, weighted)
        notes = quantization.notes(quantized, weighted)
    else:
        weights = quantization.count_weights(saved)
        _check_precision(options.precision, weights)
        notes = _precision_notes(options.precision, weights)
    notes += _dynamic_notes(outputs)
    placement = []
    if absent := _absent(options.target, devices):
        notes.append(f"where each node would run is unknown: {absent}")
    else:
        placement = _placement(core, saved, options.target.device)
    return {"placement": placement, "io": {"inputs": _listed(inputs), "outputs": _listed(outputs)}, "notes": notes}


def run(work: Work) -> Mapping[str, Json]:
    """Run the artefact on every sample and write the outputs by name."""
    options = work.options(RunOptions)
    xml = work.input("artifact") / "model.xml"
    samples = tensors.load_samples(work.input("samples"))
    device = options.target.device
    core, devices = _open_core()
    _check_present(options.target, devices)
    work.progress(f"compiling for {device}")
    with _vendor():
        model = core.read_model(xml)
    # Compiling gives outputs that are one tensor one name; only the IR still tells them apart.
    names, taken = [port.name for port in _ports(model.outputs)], _ports(model.inputs)
    _check_names(names)
    with _vendor():
        compiled = core.compile_model(model, device, {"INFERENCE_PRECISION_HINT": CALCULATION})
        used = [str(name) for name in compiled.get_property("EXECUTION_DEVICES")]
        calculation = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    _check_devices(device, used)
    _check_calculation(device, calculation)
    results = {}
    for index, (sample, feeds) in enumerate(samples.items()):
        work.progress(f"sample {sample}", index / len(samples))
        _check_feeds("in/samples", sample, "artefact", feeds, taken)
        results[sample] = dict(zip(names, _infer(compiled, feeds), strict=True))
    tensors.save_samples(work.output("outputs"), results)
    checked = {"INFERENCE_PRECISION_HINT": calculation, "EXECUTION_DEVICES": used}
    return {"device": device, "execution": {**checked, **execution.told(core, compiled, device)}}


@contextlib.contextmanager
def _vendor() -> Iterator[None]:
    """Turn what OpenVINO raises into `Failed`, with its words and what they say."""
    from openvino import frontend
    from openvino.tools.ovc import error as ovc

    # Its frontend errors are plain exceptions without a base of their own; MemoryError must pass.
    known = (
        *(RuntimeError, ValueError, TypeError, ovc.BasicError),
        *(frontend.GeneralFailure, frontend.InitializationFailure, frontend.NotImplementedFailure),
        *(frontend.OpConversionFailure, frontend.OpValidationFailure),
    )
    try:
        yield
    except known as error:
        raise Failed(failures.describe(error)) from error


def _open_core() -> tuple[Any, list[str]]:
    """Return OpenVINO's core, and the devices that it sees here; several of a kind are called GPU.0, GPU.1."""
    import openvino

    with _vendor():
        core = openvino.Core()
        return core, list(core.available_devices)


def _kind(device: str) -> str:
    """Return the kind of a device: GPU of GPU.1."""
    return device.split(".", maxsplit=1)[0]


def _absent(target: Target, devices: Sequence[str]) -> str:
    """Return why nothing can run on `target` here, "" where it can."""
    if target.device in map(_kind, devices):
        return ""
    return f"OpenVINO sees no {target.device} here, only {', '.join(devices)}"


def _check_present(target: Target, devices: Sequence[str]) -> None:
    if absent := _absent(target, devices):
        hint = "the artefact is built; run it where the device and its driver are"
        refuse(Kind.NO_DEVICE, f"target {target}: {absent}", hint=hint)


def _check_static(model: Any) -> None:
    for port in model.inputs:
        if port.get_partial_shape().is_dynamic:
            names = ", ".join(sorted(port.get_names()))
            refuse(
                Kind.DYNAMIC_SHAPE,
                f"model.onnx: input {names!r} has the shape {port.get_partial_shape()}; sizes must be known",
                hint="export the model with fixed shapes",
                node=port.get_node().get_friendly_name(),
            )


def _name(ports: Sequence[Any], asked: Sequence[Port]) -> None:
    """Give each input or output exactly one of the asked names.

    Outputs that are the same tensor in ONNX share names here, and nobody could tell which is which later; an input has
    the name of what a Reshape or Pad that changes nothing makes of it too.
    A name without an output, or the other way round, is left for the comparison with the saved IR.
    """
    free = list(ports)
    candidates = {wanted.name: [port for port in free if wanted.name in port.get_names()] for wanted in asked}
    for name, found in sorted(candidates.items(), key=lambda item: len(item[1])):
        for port in found:
            if port in free:
                free.remove(port)
                port.get_tensor().set_names({name})
                break


def _read_back(core: Any, artifact: Path) -> Any:
    """Return the model that `artifact` holds; reading it shows weights that are cut short or missing."""
    _check_files(artifact)
    with _vendor():
        return core.read_model(artifact / "model.xml")


def _check_files(artifact: Path) -> None:
    for name in ("model.xml", "model.bin"):
        if not (artifact / name).is_file():
            fail(Kind.MISSING_RESULT, f"OpenVINO reported success, but wrote no {name}")


def _check_ports(options: ConvertOptions, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    wrong = differences("input", options.inputs, inputs) + differences("output", options.outputs, outputs)
    if wrong:
        fail(
            Kind.TOOLCHAIN,
            f"OpenVINO reported success, but the IR is not the model that was asked for: {'; '.join(wrong)}",
            hint="compare the operators of the ONNX model with those that OpenVINO documents",
        )


def _check_precision(precision: Precision, weights: Counter[str]) -> None:
    wide = sum(weights[name] for name in quantization.FLOATS)
    # A file that is quantised has its weights in int8 already; what is f32 then are scales and biases.
    if precision is Precision.FP16 and wide > weights["i8"] + weights["u8"] and not weights["f16"]:
        fail(
            Kind.TOOLCHAIN,
            f"fp16 was asked for, but OpenVINO stored none of the {wide} weights in f16",
            hint="take fp32; OpenVINO does not say why, but weights that f16 cannot hold (over 65504) are one reason",
        )


def _precision_notes(precision: Precision, weights: Counter[str]) -> list[str]:
    """Return notes on weights that are not stored as asked; why they are not, OpenVINO does not tell."""
    wide, half = sum(weights[name] for name in quantization.FLOATS), weights["f16"]
    if precision is Precision.FP32:
        return [f"{half} of {wide + half} weights are f16"] if half else []
    return [f"{wide} of {wide + half} weights stay f32"] if wide else []


def _check_quantized(quantized: int, weighted: int) -> None:
    if not quantized:
        fail(
            Kind.TOOLCHAIN,
            f"int8 was asked for, but NNCF quantised none of the {weighted} convolutions and matrix products",
            hint="take fp16",
        )


def _dynamic_notes(outputs: Sequence[Port]) -> list[str]:
    return [f"output {port.name!r} gets its shape only when it runs" for port in outputs if -1 in port.shape]


def _placement(core: Any, saved: Any, device: str) -> list[dict[str, str]]:
    """Return where each operator of the saved IR runs."""
    with _vendor():
        placed = core.query_model(saved, device)
    table = []
    for node in saved.get_ordered_ops():
        name, op = node.get_friendly_name(), node.get_type_name()
        if op not in NOT_OPERATORS and not _widens_constant(node):
            table.append({"node": name, "op": op, "device": _kind(placed.get(name, ""))})
    _check_taken(device, table)
    return table


def _check_taken(device: str, table: Sequence[Mapping[str, str]]) -> None:
    for row in table:
        if row["device"] != device:
            message = f"{device} does not take {row['op']} {row['node']!r}"
            fail(Kind.UNSUPPORTED_OP, message, op=row["op"], node=row["node"])


def _widens_constant(node: Any) -> bool:
    """Tell whether `node` only widens a weight that is stored in f16, or scales one that is stored in int8."""
    if node.get_type_name() not in WIDENING:
        return False
    sources = [node.input_value(index).get_node() for index in range(node.get_input_size())]
    return all(source.get_type_name() == "Constant" or _widens_constant(source) for source in sources)


def _check_devices(device: str, used: Sequence[str]) -> None:
    if set(map(_kind, used)) != {device}:
        fail(Kind.TOOLCHAIN, f"{device} was asked for, but OpenVINO runs the model on {', '.join(used)}")


def _check_calculation(device: str, calculation: str) -> None:
    if calculation != CALCULATION:
        fail(Kind.TOOLCHAIN, f"{CALCULATION} was asked for, but {device} calculates in {calculation}")


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) != len(names) or "" in names:
        fail(Kind.MISSING_RESULT, f"the outputs of the artefact are called {names}; each needs a name of its own")


def _check_feeds(
    where: str, sample: str, what: str, feeds: Mapping[str, tensors.Array], inputs: Sequence[Port]
) -> None:
    given = [Port(name=name, shape=array.shape, dtype=array.dtype.name) for name, array in feeds.items()]
    if wrong := differences("input", inputs, given):
        raise Misused(
            f"{where}: {sample!r} does not fit the {what}: {'; '.join(wrong)}; prepare and calibrate make the samples"
        )


def _infer(compiled: Any, feeds: Mapping[str, tensors.Array]) -> list[tensors.Array]:
    """Return the outputs for one sample, in the order of the model's outputs."""
    with _vendor():
        # A new request for each sample, so that none sees what another left behind.
        request = compiled.create_infer_request()
        request.infer(dict(feeds))
        found = [request.get_tensor(port) for port in compiled.outputs]
    return [
        tensor.data.astype(DTYPES[tensor.get_element_type().to_string()], copy=True).reshape(tuple(tensor.get_shape()))
        for tensor in found
    ]


def _ports(ports: Sequence[Any]) -> list[Port]:
    """Return inputs or outputs of a model as we speak of them; sizes that it does not know are −1."""
    return [
        Port(
            name=", ".join(sorted(port.get_names())),
            shape=tuple(size.get_length() if size.is_static else -1 for size in port.get_partial_shape()),
            dtype=DTYPES.get(port.get_element_type().to_string(), port.get_element_type().to_string()),
        )
        for port in ports
    ]


def _listed(ports: Sequence[Port]) -> list[Json]:
    return [{"name": port.name, "shape": list(port.shape), "dtype": port.dtype, "layout": LAYOUT} for port in ports]
