"""The TensorRT adapter: ONNX to a serialised engine (`model.engine`), and running it on an NVIDIA GPU.

TensorRT hides several failures, so nothing here is believed because no error came:

- a build that fails returns None and raises nothing: its messages are kept by a logger of ours;
- the network is strongly typed, so a float32 model stays float32 whatever was asked for: its types are looked at;
- TF32 is on by default and shortens float32 to 10 bits of mantissa: it is switched off;
- `Runtime()` gives an object where there is no driver: the GPU is looked for first;
- an engine cannot be read back without a GPU: what is reported is read off the network that it was built from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtimes.contract import Json, Kind, Misused
from runtimes.kit import tensors
from runtimes.kit.ports import Port, differences
from runtimes.kit.work import Work, fail
from runtimes.tensorrt import device, network
from runtimes.tensorrt.building import Target, build
from runtimes.tensorrt.inference import Engine
from runtimes.tensorrt.network import DEVICE, Precision
from runtimes.tensorrt.product import Product, load

ENGINE = "model.engine"
PLACED = "the nodes are those of the network; which kernels they became is seen on a GPU only"
"""How far the placement table goes: TensorRT has no other device, so what is in the network is in the engine."""


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """What `convert` and `quantize` are told."""

    precision: Precision
    target: Target
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `run` is told; the engine was built in `precision`, and running it changes nothing of that."""

    precision: Precision
    target: Target


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    product = load()
    return {product.title: product.version}


def convert(work: Work) -> Mapping[str, Json]:
    """Write `out/artifact/model.engine` for `in/model/model.onnx`; TensorRT for RTX gives equal inputs equal bytes."""
    options = work.options(ConvertOptions)
    if options.precision is Precision.INT8:
        raise Misused("job.json: options: precision int8 needs the step quantize; ask for that")
    return _build(work, options)


def quantize(work: Work) -> Mapping[str, Json]:
    """Write the same for a model that the rewrite `qdq` has quantised already: TensorRT takes ranges from it only."""
    options = work.options(ConvertOptions)
    if options.precision is not Precision.INT8:
        raise Misused(f"job.json: options: precision {options.precision} needs no calibration; ask for convert")
    return _build(work, options)


def _build(work: Work, options: ConvertOptions) -> Mapping[str, Json]:
    """Write the engine, and return the facts of the network that it was built from."""
    source = work.input("model") / "model.onnx"
    if not source.is_file():
        raise Misused("in/model: holds no model.onnx; export writes it")
    product = load()
    work.progress("reading the ONNX model")
    parsed = network.parse(product, source)
    _check_ports(product, options, parsed.inputs, parsed.outputs)
    notes = network.check_precision(parsed, options.precision)
    table = network.placement(parsed, product.logger.nodes)
    work.progress(f"building the engine for {', '.join(options.target.capabilities)}")
    plan = build(product, parsed, options.target, options.inputs)
    artifact = work.output("artifact")
    artifact.mkdir()
    (artifact / ENGINE).write_bytes(plan)
    return {
        "placement": table,
        "io": {"inputs": network.listed(parsed.inputs), "outputs": network.listed(parsed.outputs)},
        "device": DEVICE,
        "execution": _told(product, options.target),
        "notes": [*notes, *_notes(parsed.inputs, options.inputs), *product.words("WARNING")],
        "simulated": "",
    }


def run(work: Work) -> Mapping[str, Json]:
    """Run the engine on every sample and write the outputs by name.

    Raises:
        Refused: there is no GPU here, or another one than the engine is for.
    """
    options = work.options(RunOptions)
    path = work.input("artifact") / ENGINE
    _check_engine(path)
    samples = tensors.load_samples(work.input("samples"))
    gpu = device.find()
    device.check_target(gpu, options.target, options.target.capabilities)
    product = load()
    work.progress(f"loading the engine on {gpu.name}")
    engine = Engine(product, path.read_bytes())
    results = {}
    for index, (sample, feeds) in enumerate(samples.items()):
        work.progress(f"sample {sample}", index / len(samples))
        _check_feeds(sample, feeds, engine.inputs)
        results[sample] = engine.infer(feeds)
    tensors.save_samples(work.output("outputs"), results)
    told = {"gpu": gpu.name, "compute_capability": gpu.capability, "cuda_driver": gpu.driver, "layers": engine.layers}
    return {"device": DEVICE, "execution": {**_told(product, options.target), **told}, "notes": [], "simulated": ""}


def _check_engine(path: Path) -> None:
    if not path.is_file() or not path.stat().st_size:
        raise Misused(f"in/artifact: holds no {ENGINE}; convert writes it")


def _check_ports(product: Product, options: ConvertOptions, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
    wrong = differences("input", options.inputs, inputs) + differences("output", options.outputs, outputs)
    if wrong:
        fail(
            Kind.TOOLCHAIN,
            f"{product.title} reads another model than was asked for: {'; '.join(wrong)}",
            hint="give the model inputs and outputs of types that TensorRT has: it has no float64, int16 or uint16",
        )


def _check_feeds(sample: str, feeds: Mapping[str, tensors.Array], inputs: Sequence[Port]) -> None:
    given = {name: Port(name=name, shape=array.shape, dtype=array.dtype.name) for name, array in feeds.items()}
    wanted = [_as_given(port, given.get(port.name, port)) for port in inputs]
    if wrong := differences("input", wanted, list(given.values())):
        raise Misused(f"in/samples: {sample!r} does not fit the engine: {'; '.join(wrong)}; prepare makes the samples")


def _as_given(port: Port, given: Port) -> Port:
    """Return an input of the engine, its dynamic sizes as a sample has them; TensorRT checks them by its profile."""
    if len(port.shape) != len(given.shape):
        return port
    pairs = zip(port.shape, given.shape, strict=True)
    return replace(port, shape=tuple(theirs if ours == -1 else ours for ours, theirs in pairs))


def _told(product: Product, target: Target) -> dict[str, Json]:
    return {"product": product.title, "version": product.version, "compute_capabilities": list(target.capabilities)}


def _notes(inputs: Sequence[Port], asked: Sequence[Port]) -> list[str]:
    """Return what is good to know of the engine."""
    shapes = {port.name: list(port.shape) for port in asked}
    dynamic = [port.name for port in inputs if -1 in port.shape]
    return [PLACED, *(f"input {name!r} is dynamic; the engine takes the shape {shapes[name]} only" for name in dynamic)]
