"""The QAIRT adapter: ONNX to what Qualcomm's processor HTP loads, and running it on the SDK's emulation of HTP.

The SDK is the user's own. Without one, a `.dlc` is made by the serialiser of ONNX Runtime's QNN provider: a real
container, which the SDK's tools and devices load, but nothing here can run it. With one, its tools do all of it.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

from runtimes import contract
from runtimes.contract import Json, Kind, Misused
from runtimes.kit import qualcomm, quantization, tensors
from runtimes.kit.ports import Port
from runtimes.kit.socs import SOCS
from runtimes.kit.work import Work, fail, refuse
from runtimes.qairt import context, interface, ir, raw, routes, sdk
from runtimes.qairt.interface import Interface, Tensor
from runtimes.qairt.routes import NAME, Asked
from runtimes.qairt.sdk import VARIABLE, Sdk
from runtimes.qairt.targets import Precision, Target

INTERFACE = "interface.json"
LEAST_BYTES = 64 << 20
UNPROVEN = "no tool has asked HTP for each node: where it runs is seen only where the artefact is loaded"
COPIES = 4
"""So often a model lies on the disk at once while the SDK's tools convert it: read, converted, quantised, prepared."""
NO_SDK = (
    f"no SDK of Qualcomm's is configured here, hence no qnn-net-run and no snpe-net-run: {VARIABLE} names its folder"
)


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


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    kit = sdk.find(Path())
    return {**qualcomm.versions(), **({"qairt-sdk": kit.version} if kit else {})}


def convert(work: Work) -> Mapping[str, Json]:
    """Write `out/artifact` for `in/model/model.onnx`, in floats."""
    return _make(work, None)


def quantize(work: Work) -> Mapping[str, Json]:
    """Write `out/artifact` for `in/model/model.onnx`, in whole numbers whose ranges are those of `in/calibration`."""
    return _make(work, tensors.load_samples(work.input("calibration")))


def run(work: Work) -> Mapping[str, Json]:
    """Run the artefact on every sample by the SDK's `qnn-net-run`, and write the outputs by name."""
    options = work.options(RunOptions)
    kit = sdk.find(work.layout.tmp)
    if kit is None:
        refuse(
            Kind.NO_DEVICE, f"target {options.target}: {NO_SDK}", hint="the artefact is built; run it where the SDK is"
        )
    artifact = work.input("artifact")
    told = contract.read(Interface, artifact / INTERFACE)
    loaded = _loaded(kit, artifact, told)
    samples = tensors.load_samples(work.input("samples"))
    folder = work.layout.tmp / "run"
    folder.mkdir()
    native = raw.is_native(told)
    listing = raw.write(samples, told.inputs, folder, native=native)
    results = [folder / "results" / f"Result_{number}" for number in range(len(samples))]
    arguments: list[str | Path] = [
        "--backend",
        kit.libraries / options.target.backend,
        *loaded,
        "--input_list",
        listing,
    ]
    arguments += ["--output_dir", folder / "results"]
    arguments += ["--use_native_input_files", "--use_native_output_files"] if native else []
    work.progress(f"qnn-net-run on {len(samples)} samples")
    ran = sdk.run(kit, "qnn-net-run", arguments, [], folder)
    notes = routes.must(ran, artifact / "model.onnx")
    outputs = {
        sample: raw.read(place, told.outputs, native=native) for sample, place in zip(samples, results, strict=True)
    }
    tensors.save_samples(work.output("outputs"), outputs)
    emulated = "" if options.target is Target.CPU else f"the HTP emulation of QAIRT SDK {kit.version} on x86_64"
    return {
        "device": options.target.device,
        "execution": {"backend": options.target.backend, "sdk": kit.version, "loaded": loaded[0].removeprefix("--")},
        "notes": list(notes),
        "simulated": emulated
        if "stand-in" not in kit.version
        else f"a stand-in of the SDK ({kit.version}): no HTP at all",
    }


def _make(work: Work, calibration: Mapping[str, Mapping[str, tensors.Array]] | None) -> Mapping[str, Json]:
    options = work.options(ConvertOptions)
    source = work.input("model") / "model.onnx"
    if not source.is_file():
        raise Misused("in/model: holds no model.onnx; export writes it")
    _check_asked(options, quantized=calibration is not None)
    kit = sdk.find(work.layout.tmp)
    folder = work.layout.tmp / "build"
    folder.mkdir()
    if kit is None:
        made = _serialise(work, source, options, calibration, folder)
    else:
        made = _build(work, kit, source, options, calibration, folder)
    artifact = work.output("artifact")
    artifact.mkdir()
    for name, path in made.files.items():
        shutil.copyfile(path, artifact / name)
    contract.write(made.interface, artifact / INTERFACE)
    ports = {side: [each.listed for each in getattr(made.interface, side)] for side in ("inputs", "outputs")}
    return {"placement": made.placement, "io": ports, "notes": made.notes}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Made:
    """An artefact, and what is known of it."""

    files: Mapping[str, Path]
    interface: Interface
    placement: list[dict[str, str]]
    notes: list[str]


def _serialise(
    work: Work,
    source: Path,
    options: ConvertOptions,
    calibration: Mapping[str, Mapping[str, tensors.Array]] | None,
    folder: Path,
) -> _Made:
    """Make a container without an SDK."""
    if "encodings" in work.job.inputs:
        refuse(
            Kind.OPTION,
            f"in/encodings: {VARIABLE} names no SDK, and without its converter no ranges of AIMET's are used",
            hint=f"set {VARIABLE}, or leave the encodings out: ranges are then seen in the calibration samples",
        )
    if calibration is not None:
        source = _quantized(work, source, calibration, options.precision, folder)
    dlc = folder / f"{NAME}.dlc"
    work.progress("writing the container")
    placement = ir.write(source, options.target, dlc)
    ir.check(dlc, (*options.inputs, *options.outputs))
    told = Interface(
        sdk="",
        route="serialised",
        inputs=interface.as_asked(options.inputs),
        outputs=interface.as_asked(options.outputs),
    )
    notes = [
        f"{VARIABLE} names no SDK: this .dlc is by the serialiser of ONNX Runtime's QNN provider",
        "an SDK's qnn-context-binary-generator makes a context binary of it, or the device does when it loads it",
    ]
    if options.target is Target.HTP:
        notes.append(UNPROVEN)
    if options.precision is Precision.FP16:
        notes.append("its weights are stored in f32; HTP calculates in fp16")
    if calibration is not None:
        notes += quantization.notes(source, wide=options.precision is Precision.A16W8)
    return _Made(files={dlc.name: dlc}, interface=told, placement=placement, notes=notes)


def _quantized(
    work: Work, source: Path, calibration: Mapping[str, Mapping[str, tensors.Array]], precision: Precision, folder: Path
) -> Path:
    """Return the model with quantised tensors; `source` itself where a rewrite or its owner has quantised it."""
    wide = precision is Precision.A16W8
    if quantization.is_quantized(source, wide=wide):
        return source
    work.progress("quantising")
    quantized = folder / "quantized.onnx"
    quantization.quantize(source, quantized, calibration, wide=wide)
    return quantized


def _build(
    work: Work,
    kit: Sdk,
    source: Path,
    options: ConvertOptions,
    calibration: Mapping[str, Mapping[str, tensors.Array]] | None,
    folder: Path,
) -> _Made:
    """Make an artefact by the tools of the SDK."""
    model_bytes = sum(path.stat().st_size for path in source.parent.rglob("*") if path.is_file())
    sdk.check_space(kit, LEAST_BYTES + COPIES * model_bytes)
    asked = Asked(
        source=source,
        precision=options.precision,
        target=options.target,
        inputs=options.inputs,
        outputs=options.outputs,
        calibration=_calibration(work, options.inputs, calibration),
        encodings=work.input("encodings") if "encodings" in work.job.inputs else None,
        folder=folder,
    )
    work.progress("converting by the SDK's tools")
    built = routes.build(kit, asked)
    files, notes = dict(built.files), [f"made by the tools of QAIRT SDK {kit.version}", *built.notes]
    sides = (interface.as_asked(options.inputs), interface.as_asked(options.outputs))
    if built.route != "snpe" and options.target in SOCS:
        work.progress(f"preparing the context for {options.target}")
        prepared, tried = context.prepare(kit, built, SOCS[options.target], source, folder)
        sides = _check_context(kit, options, prepared[context.BINARY], source, folder)
        files, notes = {**files, **prepared}, [*notes, *tried]
    elif options.target is Target.HTP:
        context.configure({}, None, "", folder)
        files |= {name: folder / name for name in (context.BACKEND, context.HTP)}
    if context.BINARY not in files and options.target is not Target.CPU:
        notes.append(UNPROVEN)
    told = Interface(sdk=kit.version, route=built.route, inputs=sides[0], outputs=sides[1])
    placement = [{**row, "device": options.target.device} for row in _nodes(source)]
    return _Made(files=files, interface=told, placement=placement, notes=notes)


def _calibration(
    work: Work, inputs: tuple[Port, ...], samples: Mapping[str, Mapping[str, tensors.Array]] | None
) -> Path | None:
    """Return the input list of the calibration data; the quantizer takes f32, whatever the model does."""
    if samples is None:
        return None
    folder = work.layout.tmp / "calibration"
    folder.mkdir()
    listing = raw.write(samples, interface.as_asked(inputs), folder, native=False)
    # The quantizer runs elsewhere than the list lies.
    lines = listing.read_text(encoding="utf-8").replace(":=", f":={folder}/")
    listing.write_text(lines, encoding="utf-8")
    return listing


def _check_context(
    kit: Sdk, options: ConvertOptions, binary: Path, source: Path, folder: Path
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return how the context binary stores inputs and outputs; fail where they are not those that were asked for."""
    inputs, outputs = context.read_back(kit, binary, source, folder)
    taken, wrong = interface.match("input", options.inputs, inputs)
    given, wrong_outputs = interface.match("output", options.outputs, outputs)
    if wrong or wrong_outputs:
        fail(
            Kind.TOOLCHAIN,
            "the SDK's tools reported success, but the context binary is not the model that was asked for: "
            f"{'; '.join([*wrong, *wrong_outputs])}",
        )
    return tuple(taken), tuple(given)


def _check_asked(options: ConvertOptions, *, quantized: bool) -> None:
    if options.precision.quantized != quantized:
        step = "quantize" if options.precision.quantized else "convert"
        raise Misused(f"job.json: precision {options.precision} is made by the step {step!r}; start that one")
    if options.precision is Precision.FP32 and options.target is not Target.CPU:
        refuse(Kind.OPTION, "HTP calculates floats in fp16; take --precision fp16, or --target cpu")
    if options.precision is Precision.FP16 and options.target is Target.CPU:
        refuse(Kind.OPTION, "the SDK's CPU backend calculates floats in fp32; take --precision fp32")


def _nodes(source: Path) -> list[dict[str, str]]:
    """Return the nodes of a model: what the vendor makes a context of is on HTP as a whole, or is not made.

    Where no context was made, a note says so: see `UNPROVEN`.
    """
    nodes = qualcomm.read_graph(source).node
    return [{"node": node.name or node.output[0], "op": node.op_type} for node in nodes]


def _loaded(kit: Sdk, artifact: Path, told: Interface) -> tuple[str, Path]:
    """Return how `qnn-net-run` is told to load the artefact."""
    if told.route == "snpe":
        refuse(
            Kind.NO_DEVICE,
            f"the artefact was made by the SNPE tools of QAIRT SDK {kit.version}, whose snpe-net-run has no HTP here",
            hint="run it on the device, or use an SDK that has qairt-converter",
        )
    names = {"--retrieve_context": context.BINARY, "--model": f"lib{NAME}.so", "--dlc_path": f"{NAME}.dlc"}
    option = next((option for option, name in names.items() if (artifact / name).is_file()), "")
    if not option:
        raise Misused(f"in/artifact: holds none of {', '.join(names.values())}; convert makes one of them")
    return option, artifact / names[option]
