"""The ONNX Runtime QNN adapter: ONNX to a context binary for the HTP of a SoC, and running it on QNN's emulator.

An artefact is `model_ctx.onnx`, the context binary beside it, and `build.json`, which says what it was built with and
for: a context of one release does not load in another, and the vendor's words for that are no help.

Nothing is believed because no error came: sessions are strict (see `runtimes.kit.qualcomm`), the context that was
written is opened again, and it must have the inputs and outputs that were asked for.
"""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runtimes import contract
from runtimes.contract import Json, Kind, Misused
from runtimes.kit import qualcomm, quantization, tensors
from runtimes.kit.ports import Port, differences
from runtimes.kit.qualcomm import check_static
from runtimes.kit.socs import SOCS, Soc
from runtimes.kit.work import Failed, Refused, Work, fail, refuse
from runtimes.ortqnn import context, encodings
from runtimes.ortqnn.context import CONTEXT

DEVICE = "HTP"
LAYOUT = "as in the ONNX model"
BUILD = "build.json"
MULTI = "multi"
FAMILY = ("sm8650", "sm8550", "sm8750", "sc8380xp")
"""The SoCs that the target `multi` is for."""
VALIDATION = "error code 3110"
"""What QNN says of an operator that the HTP does not take in this form, and nothing more."""


class Precision(enum.StrEnum):
    """What the HTP calculates in."""

    FP16 = "fp16"
    INT8 = "int8"
    A16W8 = "a16w8"


Target = enum.StrEnum("Target", {name.upper(): name for name in (*SOCS, MULTI)})  # type: ignore[misc]
"""What the artefact is for: a SoC, or several at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """What `convert` and `quantize` are told."""

    precision: Precision
    target: Target
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `run` is told."""

    precision: Precision
    target: Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Build:
    """What an artefact was built with and for.

    Attributes:
        versions: package name to version.
        socs: the names of the SoCs.
        inputs: what the model takes.
        outputs: what it gives.
    """

    versions: Mapping[str, str]
    socs: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    return qualcomm.versions()


def convert(work: Work) -> Mapping[str, Json]:
    """Write `out/artifact` for `in/model/model.onnx`: the HTP calculates in fp16; equal inputs give equal bytes."""
    options = work.options(ConvertOptions)
    if options.precision is not Precision.FP16:
        raise Misused(f"job.json: options: precision {options.precision} needs the step quantize; ask for that")
    return _build(work, options, _source(work))


def quantize(work: Work) -> Mapping[str, Json]:
    """Write `out/artifact` for `in/model/model.onnx`, in whole numbers with ranges seen in `in/calibration`.

    What `in/encodings`, a file of AIMET's, says of a tensor is used as it is.
    """
    options = work.options(ConvertOptions)
    if options.precision is Precision.FP16:
        raise Misused("job.json: options: precision fp16 needs no calibration; ask for the step convert")
    source = _source(work)
    samples = tensors.load_samples(work.input("calibration"))
    _check_feeds("in/calibration", "model", samples, options.inputs)
    wide = options.precision is Precision.A16W8
    if quantization.is_quantized(source, wide=wide):
        # By a rewrite that was asked for, or by whoever gave the file.
        facts = _build(work, options, source)
        return {**facts, "notes": [*facts["notes"], *quantization.notes(source, wide=wide)]}
    given = encodings.read(work.input("encodings"), source, 16 if wide else 8) if "encodings" in work.job.inputs else {}
    work.progress(f"quantizing with {len(samples)} samples")
    quantized = work.layout.tmp / "quantized" / "model.onnx"
    quantized.parent.mkdir(parents=True)
    quantization.quantize(source, quantized, samples, wide=wide, overrides=given)
    facts = _build(work, options, quantized)
    told = [f"the scales of {len(given)} tensors are AIMET's"] if given else []
    return {**facts, "notes": [*facts["notes"], *told]}


def run(work: Work) -> Mapping[str, Json]:
    """Run the artefact on every sample on the emulator, and write the outputs by name."""
    options = work.options(RunOptions)
    artifact = work.input("artifact")
    build = _read_build(artifact, options)
    samples = tensors.load_samples(work.input("samples"))
    _check_feeds("in/samples", "artefact", samples, build.inputs)
    soc = SOCS[build.socs[0]]
    work.progress("loading the context binary")
    session = _load(artifact, options.target, soc, work.layout.tmp / "load.log")
    _check_ports(build.inputs, build.outputs, session)
    results = {}
    for index, (sample, feeds) in enumerate(samples.items()):
        work.progress(f"sample {sample} on the emulator", index / len(samples))
        results[sample] = _infer(session, feeds, build.outputs)
    tensors.save_samples(work.output("outputs"), results)
    return {
        "device": DEVICE,
        "execution": {"provider": qualcomm.PLUGIN, "soc": soc.name, "arch": soc.arch, "soc_model": soc.number},
        "simulated": f"the HTP emulator of onnxruntime-qnn {versions()['onnxruntime-qnn']} on this CPU",
    }


def _source(work: Work) -> Path:
    source = work.input("model") / "model.onnx"
    if not source.is_file():
        raise Misused("in/model: holds no model.onnx; export writes it")
    check_static(source)
    return source


def _socs(target: Target) -> tuple[Soc, ...]:
    """Return the SoCs that a target stands for."""
    return tuple(SOCS[name] for name in (FAMILY if target == MULTI else (str(target),)))


def _backend(*numbers: int) -> Mapping[str, str]:
    return {"backend_type": "htp", "soc_model": ",".join(map(str, numbers))}


def _build(work: Work, options: ConvertOptions, source: Path) -> Mapping[str, Json]:
    """Write the artefact for the ONNX model at `source`, and return the facts."""
    socs = _socs(options.target)
    artifact = work.output("artifact")
    artifact.mkdir()
    work.progress(f"building the context for {' and '.join(soc.name for soc in socs)}")
    opened = _write_context(work, options, source, artifact, socs)
    work.progress("reading the context back")
    context.check(artifact, options.inputs, options.outputs, socs)
    # The emulator loads no binary for several SoCs; of that there is the session that wrote it.
    alone = options.target != MULTI
    session = _load(artifact, options.target, socs[0], work.layout.tmp / "load.log") if alone else opened.session
    inputs, outputs = _check_ports(options.inputs, options.outputs, session)
    names = tuple(soc.name for soc in socs)
    contract.write(
        Build(versions=versions(), socs=names, inputs=options.inputs, outputs=options.outputs), artifact / BUILD
    )
    return {
        "placement": [{"node": node.name, "op": node.op, "device": DEVICE} for node in opened.nodes],
        "io": {"inputs": _listed(inputs), "outputs": _listed(outputs)},
        "notes": _notes(socs),
    }


def _write_context(
    work: Work, options: ConvertOptions, source: Path, artifact: Path, socs: Sequence[Soc]
) -> qualcomm.Opened:
    """Write the context and the binary, and return the session that did; its nodes are those of the model."""
    entries = {
        "ep.context_enable": "1",
        "ep.context_embed_mode": "0",
        "ep.context_file_path": str(artifact / CONTEXT),
    }
    # ONNX Runtime names the graph in the binary after the model's path, so the path must be the same everywhere.
    path = Path(os.path.relpath(source))
    try:
        return qualcomm.open_session(
            path, _backend(*(soc.number for soc in socs)), entries, work.layout.tmp / "build.log"
        )
    except (Failed, Refused) as failed:
        without = [soc.name for soc in socs if not soc.floats]
        if without and options.precision is Precision.FP16 and VALIDATION in failed.failure.message:
            refuse(
                Kind.OPTION,
                f"the HTP of {' and '.join(without)} does not calculate in fp16: {failed.failure.message}",
                hint="take int8 or a16w8",
            )
        raise


def _notes(socs: Sequence[Soc]) -> list[str]:
    found = versions()
    built = " and ".join(f"{soc.name} ({soc.arch}, soc_model {soc.number})" for soc in socs)
    tools = f"onnxruntime-qnn {found['onnxruntime-qnn']} (QNN {found['qnn']}) in onnxruntime {found['onnxruntime']}"
    return [f"built for {built} by {tools}; it loads in these versions only"]


def _read_build(artifact: Path, options: RunOptions) -> Build:
    """Return what the artefact was built with and for; refuse another version's or target's."""
    try:
        build = contract.read(Build, artifact / BUILD)
    except FileNotFoundError as error:
        raise Misused(f"in/artifact: holds no {BUILD}; convert writes it") from error
    asked = tuple(soc.name for soc in _socs(options.target))
    if build.socs != asked:
        raise Misused(
            f"in/artifact: is for {' and '.join(build.socs)}, not for {' and '.join(asked)}; convert for the target"
        )
    _check_versions(build.versions)
    return build


def _check_versions(built: Mapping[str, str]) -> None:
    here = versions()
    other = [f"{name} {version}" for name, version in built.items() if here.get(name) != version]
    if other:
        refuse(
            Kind.TOOLCHAIN,
            f"the artefact was built with {', '.join(other)}; here is "
            f"{', '.join(f'{name} {here.get(name)}' for name in built)}, and a context loads in its own version only",
            hint="convert the model again",
        )


def _load(artifact: Path, target: Target, soc: Soc, log: Path) -> Any:
    """Return a session on the context, on the emulator of a SoC.

    Raises:
        Refused: the context is for several SoCs, which the emulator does not load.
        Failed: in the vendor's words.
    """
    try:
        opened = qualcomm.open_session(artifact / CONTEXT, _backend(soc.number), {}, log)
    except Failed as failed:
        if target == MULTI:
            refuse(
                Kind.NO_DEVICE,
                f"target {target}: the emulator loads no binary for several SoCs: {failed.failure.message}",
                hint=f"the artefact is built; run it on a device, or deploy for one SoC: {', '.join(FAMILY)}",
            )
        raise
    _check_context(opened)
    return opened.session


def _check_context(opened: qualcomm.Opened) -> None:
    """Refuse a session that holds more than contexts: then something of the model is calculated outside of them."""
    for node in opened.nodes:
        if node.op != "EPContext":
            fail(Kind.TOOLCHAIN, f"{CONTEXT} holds {node} beside its context", op=node.op, node=node.name)


def _check_ports(
    asked_inputs: Sequence[Port], asked_outputs: Sequence[Port], session: Any
) -> tuple[list[Port], list[Port]]:
    """Return the inputs and outputs of a session, which must be those that were asked for."""
    inputs, outputs = _ports(session.get_inputs()), _ports(session.get_outputs())
    wrong = differences("input", asked_inputs, inputs) + differences("output", asked_outputs, outputs)
    if wrong:
        fail(Kind.TOOLCHAIN, f"the context is not the model that was asked for: {'; '.join(wrong)}")
    return inputs, outputs


def _listed(ports: Sequence[Port]) -> list[Json]:
    return [{**contract.encode(port), "layout": LAYOUT} for port in ports]


def _ports(described: Sequence[Any]) -> list[Port]:
    return [
        Port(
            name=each.name,
            shape=tuple(size if isinstance(size, int) else -1 for size in each.shape),
            dtype=_dtype(each.type),
        )
        for each in described
    ]


def _dtype(text: str) -> str:
    """Return numpy's name of an element type that ONNX Runtime calls, for instance, tensor(float)."""
    word = text.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(word, word)).name


def _check_feeds(
    where: str, what: str, samples: Mapping[str, Mapping[str, tensors.Array]], inputs: Sequence[Port]
) -> None:
    for sample, feeds in samples.items():
        given = [Port(name=name, shape=array.shape, dtype=array.dtype.name) for name, array in feeds.items()]
        if wrong := differences("input", inputs, given):
            raise Misused(f"{where}: {sample!r} does not fit the {what}: {'; '.join(wrong)}; prepare makes the samples")


def _infer(session: Any, feeds: Mapping[str, tensors.Array], outputs: Sequence[Port]) -> dict[str, tensors.Array]:
    names = [port.name for port in outputs]
    with qualcomm.vendor_errors():
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))
