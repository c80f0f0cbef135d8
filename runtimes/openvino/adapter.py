"""The OpenVINO adapter: ONNX to OpenVINO IR (`model.xml` and `model.bin`), and running the IR on a device.

OpenVINO hides several failures, so nothing here is believed because no error came:

- a graph with sequences is hollowed out and comes back with other inputs: the IR is read back and compared;
- weights outside the range of f16 stay f32: an IR none of whose weights is f16 is no fp16 artefact;
- the CPU plugin calculates in bf16 where the CPU can, and takes bf16 for f16: the hint is set, and read back;
- an inference request fills in missing inputs by itself, and casts wrong element types: inputs are compared first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from runtimes.contract import Json, Kind, Misused
from runtimes.kit import tensors
from runtimes.kit.adapter import Tensor, differences
from runtimes.kit.work import Failed, Work, fail, refuse
from runtimes.openvino import failures

DTYPES: Mapping[str, str] = {
    "boolean": "bool",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
"""OpenVINO's element types by numpy's names."""

FLOATS = ("f32", "f64")
NOT_OPERATORS = ("Parameter", "Constant", "Result")
NOT_LAYERS = ("Input", "Const", "Output")
LAYOUT = "as in the ONNX model"


class Precision(enum.StrEnum):
    """How the weights are stored."""

    FP16 = "fp16"
    FP32 = "fp32"


class Target(enum.StrEnum):
    """What the artefact is for."""

    CPU = "cpu"
    GPU = "gpu"
    NPU = "npu"

    @property
    def device(self) -> str:
        """OpenVINO's name of it."""
        return self.value.upper()


class Calculation(enum.StrEnum):
    """What the device calculates floating point numbers in."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extra:
    """Options that only OpenVINO has.

    Attributes:
        inference_precision: what `run` calculates in, whatever the weights are stored as.
    """

    inference_precision: Calculation = Calculation.F32


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """What `convert` is told."""

    precision: Precision
    target: Target
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    extra: Extra = dataclasses.field(default_factory=Extra)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `run` is told."""

    precision: Precision
    target: Target
    extra: Extra = dataclasses.field(default_factory=Extra)


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    return {name: metadata.version(name) for name in ("openvino", "numpy")}


def convert(work: Work) -> Mapping[str, Json]:
    """Write `out/artifact/model.xml` and `model.bin` for `in/model/model.onnx`; equal inputs give equal bytes."""
    import openvino

    options = work.options(ConvertOptions)
    source = work.input("model") / "model.onnx"
    if not source.is_file():
        raise Misused("in/model: holds no model.onnx; export writes it")
    work.progress("reading the ONNX model")
    with _vendor():
        model = openvino.convert_model(source)
    _refuse_dynamic(model)
    _name_outputs(model, options.outputs)
    # Nothing else makes nodes before this: automatic names are numbered per process and would differ.
    artifact = work.output("artifact")
    artifact.mkdir()
    work.progress("writing the IR")
    with _vendor():
        openvino.save_model(model, artifact / "model.xml", compress_to_fp16=options.precision is Precision.FP16)
    del model
    work.progress("reading the IR back")
    core = openvino.Core()
    saved = _read_back(core, artifact)
    inputs, outputs = _tensors(saved.inputs), _tensors(saved.outputs)
    _check_ports(options, inputs, outputs)
    notes = [*_check_precision(saved, options.precision), *_dynamic_notes(outputs)]
    placement = []
    if _devices(core, options.target):
        placement = _placement(core, saved, options.target.device)
    else:
        notes.append(
            f"where each node would run is unknown: OpenVINO sees no {options.target.device} here, only "
            f"{', '.join(core.available_devices)}"
        )
    return {"placement": placement, "io": {"inputs": _ports(inputs), "outputs": _ports(outputs)}, "notes": notes}


def run(work: Work) -> Mapping[str, Json]:
    """Run the artefact on every sample and write the outputs by name."""
    import openvino

    options = work.options(RunOptions)
    xml = work.input("artifact") / "model.xml"
    samples = tensors.load_samples(work.input("samples"))
    core = openvino.Core()
    if not _devices(core, options.target):
        refuse(
            Kind.NO_DEVICE,
            f"target {options.target}: OpenVINO sees no {options.target.device} here, only "
            f"{', '.join(core.available_devices)}",
            hint="the artefact is built; run it where the device and its driver are",
        )
    asked = options.extra.inference_precision
    work.progress(f"compiling for {options.target.device}")
    with _vendor():
        model = core.read_model(xml)
    # Compiling gives outputs that are one tensor one name; only the IR still tells them apart.
    names = _output_names(model)
    with _vendor():
        compiled = core.compile_model(model, options.target.device, {"INFERENCE_PRECISION_HINT": asked.value})
    execution = _execution(core, compiled, options.target, asked)
    results = {}
    for index, (sample, feeds) in enumerate(samples.items()):
        work.progress(f"sample {sample}", index / len(samples))
        _check_feeds(sample, feeds, _tensors(compiled.inputs))
        results[sample] = dict(zip(names, _infer(compiled, feeds), strict=True))
    tensors.save_samples(work.output("outputs"), results)
    layers = [node for node in compiled.get_runtime_model().get_ordered_ops() if _layer(node) not in NOT_LAYERS]
    placement = [
        {"node": node.get_friendly_name(), "op": _layer(node), "device": options.target.device} for node in layers
    ]
    return {"device": options.target.device, "execution": execution, "placement": placement}


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


def _devices(core: Any, target: Target) -> list[str]:
    """Return the devices of the machine that are a `target`; several of a kind are called GPU.0, GPU.1."""
    return [name for name in core.available_devices if name.split(".")[0] == target.device]


def _refuse_dynamic(model: Any) -> None:
    for port in model.inputs:
        if port.get_partial_shape().is_dynamic:
            names = ", ".join(sorted(port.get_names()))
            refuse(
                Kind.DYNAMIC_SHAPE,
                f"model.onnx: input {names!r} has the shape {port.get_partial_shape()}; sizes must be known",
                hint="export the model with fixed shapes",
                node=port.get_node().get_friendly_name(),
            )


def _name_outputs(model: Any, asked: Sequence[Tensor]) -> None:
    """Give each output exactly one of the asked names.

    Outputs that are the same tensor in ONNX share names here, and nobody could tell which is which later.
    A name without an output, or the other way round, is left for the comparison with the saved IR.
    """
    free = list(model.outputs)
    candidates = {tensor.name: [port for port in free if tensor.name in port.get_names()] for tensor in asked}
    for name, ports in sorted(candidates.items(), key=lambda item: len(item[1])):
        for port in ports:
            if port in free:
                free.remove(port)
                port.get_tensor().set_names({name})
                break


def _read_back(core: Any, artifact: Path) -> Any:
    """Return the model that `artifact` holds, once it is sure that it is whole."""
    xml, weights = artifact / "model.xml", artifact / "model.bin"
    for path in (xml, weights):
        if not path.is_file():
            fail(Kind.MISSING_RESULT, f"OpenVINO reported success, but wrote no {path.name}")
    if weights.stat().st_size == 0 and (constants := xml.read_text(encoding="utf-8").count('type="Const"')):
        fail(Kind.MISSING_RESULT, f"OpenVINO reported success, but model.bin is empty beside {constants} constants")
    with _vendor():
        return core.read_model(xml)


def _check_ports(options: ConvertOptions, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    wrong = differences("input", options.inputs, inputs) + differences("output", options.outputs, outputs)
    if wrong:
        fail(
            Kind.TOOLCHAIN,
            f"OpenVINO reported success, but the IR is not the model that was asked for: {'; '.join(wrong)}",
            hint="compare the operators of the ONNX model with those that OpenVINO documents",
        )


def _check_precision(saved: Any, precision: Precision) -> list[str]:
    """Return notes on weights that are not stored as asked; an fp16 artefact without any f16 weight is a failure."""
    sizes: Counter[str] = Counter()
    for node in saved.get_ops():
        if node.get_type_name() == "Constant":
            count = math.prod(node.get_output_shape(0))
            # OpenVINO leaves single numbers in f32 by design.
            sizes[node.get_element_type().to_string()] += count if count > 1 else 0
    wide = sum(sizes[name] for name in FLOATS)
    if precision is Precision.FP32:
        return [f"{sizes['f16']} weights are f16, as in the ONNX model"] if sizes["f16"] else []
    if wide and not sizes["f16"]:
        fail(
            Kind.TOOLCHAIN,
            f"fp16 was asked for, but OpenVINO stored none of the {wide} weights in f16",
            hint="weights outside the range of f16 (±65504) stay f32: take fp32, or scale them",
        )
    if not wide:
        return []
    return [f"{wide} of {wide + sizes['f16']} weights stay f32: outside the range of f16, or sensitive to precision"]


def _dynamic_notes(outputs: Sequence[Tensor]) -> list[str]:
    return [f"output {tensor.name!r} gets its shape only when it runs" for tensor in outputs if -1 in tensor.shape]


def _placement(core: Any, saved: Any, device: str) -> list[dict[str, str]]:
    """Return where each operator of the saved IR runs; one that the device does not take is a failure."""
    with _vendor():
        placed = core.query_model(saved, device)
    table = []
    for node in saved.get_ordered_ops():
        name, kind = node.get_friendly_name(), node.get_type_name()
        if kind in NOT_OPERATORS or _widens_constant(node):
            continue
        if name not in placed:
            fail(Kind.UNSUPPORTED_OP, f"{device} does not take {kind} {name!r}", op=kind, node=name)
        table.append({"node": name, "op": kind, "device": placed[name].split(".")[0]})
    return table


def _widens_constant(node: Any) -> bool:
    """Tell whether `node` only widens a weight that is stored in f16."""
    return bool(node.get_type_name() == "Convert" and node.input_value(0).get_node().get_type_name() == "Constant")


def _execution(core: Any, compiled: Any, target: Target, asked: Calculation) -> dict[str, Json]:
    """Return the hints in force, read back; a device or a precision that was not asked for is a failure."""
    devices = [str(name) for name in compiled.get_property("EXECUTION_DEVICES")]
    if {name.split(".")[0] for name in devices} != {target.device}:
        fail(Kind.TOOLCHAIN, f"{target.device} was asked for, but OpenVINO runs the model on {', '.join(devices)}")
    in_force = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if in_force != asked.value:
        fail(
            Kind.TOOLCHAIN,
            f"inference_precision {asked.value} was asked for, but {target.device} calculates in {in_force}",
            hint="ask for a precision that the device has",
        )
    layers = compiled.get_runtime_model().get_ordered_ops()
    kernels = Counter(_fact(node, "primitiveType") for node in layers if _layer(node) not in NOT_LAYERS)
    return {
        "inference_precision": in_force,
        "devices": devices,
        "device_name": str(core.get_property(target.device, "FULL_DEVICE_NAME")),
        "performance_hint": str(compiled.get_property("PERFORMANCE_HINT")),
        "kernels": dict(sorted(kernels.items())),
    }


def _layer(node: Any) -> str:
    return _fact(node, "layerType")


def _fact(node: Any, name: str) -> str:
    """Return what the compiled model tells of a node, "" when it does not."""
    told = node.get_rt_info()
    return str(told[name].astype(str)) if name in told else ""


def _output_names(model: Any) -> list[str]:
    """Return the names of the outputs in their order; each must have one, and no two the same."""
    names = [tensor.name for tensor in _tensors(model.outputs)]
    if len(set(names)) != len(names) or "" in names:
        fail(Kind.MISSING_RESULT, f"the outputs of the artefact are called {names}; each needs a name of its own")
    return names


def _check_feeds(sample: str, feeds: Mapping[str, tensors.Array], inputs: Sequence[Tensor]) -> None:
    given = [Tensor(name=name, shape=array.shape, dtype=array.dtype.name) for name, array in feeds.items()]
    if wrong := differences("input", inputs, given):
        raise Misused(
            f"in/samples: {sample!r} does not fit the artefact: {'; '.join(wrong)}; prepare makes the samples"
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


def _tensors(ports: Sequence[Any]) -> list[Tensor]:
    """Return inputs or outputs of a model as we speak of them; sizes that it does not know are −1."""
    return [
        Tensor(
            name=", ".join(sorted(port.get_names())),
            shape=tuple(size.get_length() if size.is_static else -1 for size in port.get_partial_shape()),
            dtype=DTYPES.get(port.get_element_type().to_string(), port.get_element_type().to_string()),
        )
        for port in ports
    ]


def _ports(found: Sequence[Tensor]) -> list[Json]:
    return [
        {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype, "layout": LAYOUT} for tensor in found
    ]
