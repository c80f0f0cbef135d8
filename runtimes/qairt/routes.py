"""From ONNX to a graph of the vendor's, by the tools that the SDK has.

Nobody chooses the route: the newest that the SDK can go is taken. The first two lead to the same context binary, and
differ only in what lies before it:

- container: `qairt-converter`, and `qairt-quantizer` for whole numbers; a `.dlc`, which needs no compiler;
- library: `qnn-onnx-converter` and `qnn-model-lib-generator`, in older SDKs; C++, which the machine's clang compiles;
- snpe: `snpe-onnx-to-dlc`, `snpe-dlc-quantize` and `snpe-dlc-graph-prepare`, where there is nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runtimes.contract import Failure, Kind
from runtimes.kit.ports import Port
from runtimes.kit.socs import SOCS
from runtimes.kit.work import Failed, refuse
from runtimes.qairt import sdk
from runtimes.qairt.sdk import HOST, Ran, Sdk
from runtimes.qairt.targets import Precision, Target

NAME = "model"
NCHW = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be built.

    Attributes:
        source: the ONNX model.
        precision: what it calculates in.
        target: what for.
        inputs: of the model.
        outputs: of the model.
        calibration: the input list of calibration data, None for floats.
        encodings: ranges that AIMET found, to be used as they are, or None.
        folder: an empty one to work in.
    """

    source: Path
    precision: Precision
    target: Target
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    calibration: Path | None
    encodings: Path | None
    folder: Path

    @property
    def names(self) -> list[str]:
        """The arguments with which both older converters name what goes in and out."""
        return [part for port in self.outputs for part in ("--out_node", port.name)]

    @property
    def encoded(self) -> list[str | Path]:
        """The argument that brings the encodings."""
        return ["--quantization_overrides", self.encodings] if self.encodings else []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """A graph of the vendor's.

    Attributes:
        route: container, library or snpe.
        loaded: how the vendor's programs are told to load it.
        files: what is delivered of it: name to path.
        notes: for people.
    """

    route: str
    loaded: tuple[str | Path, ...]
    files: Mapping[str, Path]
    notes: tuple[str, ...]


def build(kit: Sdk, asked: Asked) -> Built:
    """Return the graph that the newest tools of the SDK make.

    Raises:
        Refused: the SDK has no converter.
        Failed: a tool did not do what was asked.
    """
    routes: Mapping[str, Callable[[Sdk, Asked], Built]] = {
        "qairt-converter": _container,
        "qnn-onnx-converter": _library,
        "snpe-onnx-to-dlc": _snpe,
    }
    found = next((route for tool, route in routes.items() if kit.has(tool)), None)
    if found is None:
        refuse(Kind.MISSING_PACKAGE, f"the SDK has no converter: none of {', '.join(routes)} is in bin/{HOST}")
    return found(kit, asked)


def must(ran: Ran, source: Path) -> tuple[str, ...]:
    """Return the notes of a tool that did what was asked.

    Raises:
        Failed: it did not.
    """
    if not ran:
        raise Failed(ran.failure(source))
    return ran.notes


def _container(kit: Sdk, asked: Asked) -> Built:
    floats = asked.folder / (f"{NAME}.dlc" if asked.calibration is None else "floats.dlc")
    shaped = [part for port in asked.inputs for part in ("-s", port.name, _sizes(port))]
    named = [part for port in asked.outputs for part in ("--out_tensor_node", port.name)]
    # A picture stays as it is in ONNX: else the converter turns it to NHWC.
    layouts = [
        part
        for port in asked.inputs
        if len(port.shape) == NCHW
        for part in ("--source_model_input_layout", port.name, "NCHW", "--desired_input_layout", port.name, "NCHW")
    ]
    width = ["--float_bitwidth", "16"] if asked.precision is Precision.FP16 else []
    common: list[str | Path] = ["--input_network", asked.source]
    told = [*shaped, *named, *layouts, "--preserve_io_datatype", *asked.encoded, *width]
    ran = sdk.run(kit, "qairt-converter", [*common, "--output_path", floats, *told], [floats], asked.folder)
    if not ran:
        raise Failed(_found_dry(kit, asked, ran, [*common, "--output_path", floats, *told]))
    notes, dlc = ran.notes, floats
    if asked.calibration is not None:
        dlc = asked.folder / f"{NAME}.dlc"
        arguments: list[str | Path] = ["--input_dlc", floats, "--output_dlc", dlc, "--input_list", asked.calibration]
        arguments += [*_widths(asked), "--use_per_channel_quantization"]
        notes += must(sdk.run(kit, "qairt-quantizer", arguments, [dlc], asked.folder), asked.source)
    loaded = ("--model", kit.libraries / "libQnnModelDlc.so", "--dlc_path", dlc)
    return Built(route="container", loaded=loaded, files={dlc.name: dlc}, notes=notes)


def _found_dry(kit: Sdk, asked: Asked, ran: Ran, arguments: Sequence[str | Path]) -> Failure:
    """Return why the converter failed; where its words name no operator, a dry run, which converts nothing, may do."""
    failure = ran.failure(asked.source)
    if failure.kind not in (Kind.TOOLCHAIN, Kind.MISSING_RESULT):
        return failure
    dry = sdk.run(kit, "qairt-converter", [*arguments, "--dry_run"], [], asked.folder).failure(asked.source)
    if dry.kind is not Kind.UNSUPPORTED_OP:
        return failure
    return dataclasses.replace(dry, message=f"{failure.message}\nits dry run says:\n{dry.message}")


def _library(kit: Sdk, asked: Asked) -> Built:
    source, weights, listing = (asked.folder / f"{NAME}{end}" for end in (".cpp", ".bin", "_net.json"))
    shaped = [part for port in asked.inputs for part in ("--input_dim", port.name, _sizes(port))]
    arguments: list[str | Path] = ["--input_network", asked.source, "--output_path", source, *shaped, *asked.names]
    arguments += ["--preserve_io", *asked.encoded]
    if asked.calibration is not None:
        arguments += ["--input_list", asked.calibration, *_widths(asked)]
    elif asked.precision is Precision.FP16:
        arguments += ["--float_bitwidth", "16"]
    ran = sdk.run(kit, "qnn-onnx-converter", arguments, [source, weights, listing], asked.folder)
    notes = must(ran, asked.source)
    library = asked.folder / "libraries" / HOST / f"lib{NAME}.so"
    arguments = ["-c", source, "-b", weights, "-t", HOST, "-l", NAME, "-o", library.parent.parent]
    notes += must(sdk.run(kit, "qnn-model-lib-generator", arguments, [library], asked.folder), asked.source)
    files = {path.name: path for path in (source, weights, listing, library)}
    return Built(route="library", loaded=("--model", library), files=files, notes=notes)


def _snpe(kit: Sdk, asked: Asked) -> Built:
    dlc = asked.folder / f"{NAME}.dlc"
    shaped = [part for port in asked.inputs for part in ("-d", port.name, _sizes(port))]
    arguments: list[str | Path] = ["--input_network", asked.source, "--output_path", dlc, *shaped, *asked.names]
    arguments += ["--preserve_io", *asked.encoded]
    notes = must(sdk.run(kit, "snpe-onnx-to-dlc", arguments, [dlc], asked.folder), asked.source)
    if asked.calibration is not None:
        quantized = asked.folder / "quantized.dlc"
        arguments = [f"--input_dlc={dlc}", f"--input_list={asked.calibration}", f"--output_dlc={quantized}"]
        widths = _widths(asked)
        arguments += [f"{name}={bits}" for name, bits in zip(widths[::2], widths[1::2], strict=True)]
        notes += must(sdk.run(kit, "snpe-dlc-quantize", arguments, [quantized], asked.folder), asked.source)
        dlc = quantized
    if asked.target in SOCS:
        prepared = asked.folder / "prepared.dlc"
        arguments = [f"--input_dlc={dlc}", f"--output_dlc={prepared}", f"--htp_socs={asked.target}"]
        notes += must(sdk.run(kit, "snpe-dlc-graph-prepare", arguments, [prepared], asked.folder), asked.source)
        dlc = prepared
    return Built(route="snpe", loaded=(), files={f"{NAME}.dlc": dlc}, notes=notes)


def _widths(asked: Asked) -> list[str]:
    bits = str(asked.precision.activation_bits)
    return ["--act_bitwidth", bits, "--weights_bitwidth", "8", "--bias_bitwidth", "32"]


def _sizes(port: Port) -> str:
    return ",".join(map(str, port.shape))
