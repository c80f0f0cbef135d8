"""The tools of the stand-in. They take the vendor's arguments and no others, and do as little as a test can judge."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tests.qairt.standin_container import TOOL, Container, fault, feeds, made, plain, settings, stop

MOST_OPSET = 21
UNSUPPORTED = ("Det", "NonZero", "Trilu")
NHWC = (0, 2, 3, 1)


def main(tool: str) -> NoReturn:
    """Be `tool`."""
    TOOL.append(tool)
    if fault("crash"):
        os.abort()
    if fault("disk"):
        stop("OSError: [Errno 28] No space left on device")
    TOOLS[tool](parser(tool))
    if fault("complains") or fault("gives_up"):
        sys.stdout.write("[ ERROR ] Failed to create a power configuration\n")
    sys.exit(1 if fault("exit_1") or fault("gives_up") else 0)


def parser(tool: str) -> argparse.ArgumentParser:
    if fault("usage"):
        stop(f"usage: {tool} [-h]\n{tool}: error: unrecognized arguments: {' '.join(sys.argv[1:])}", 2)
    return argparse.ArgumentParser(prog=tool, allow_abbrev=False)


def existing(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text}: no such file")
    return path


def pairs(parser: argparse.ArgumentParser, *flags: str) -> None:
    parser.add_argument(*flags, nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))


# The converters.
def convert(arguments: argparse.Namespace, shapes: Sequence[Sequence[str]], outputs: Sequence[str]) -> Container:
    import onnx

    model = onnx.load(arguments.input_network)
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset > MOST_OPSET:
        stop(f"ERROR - Opset {opset} is not supported; the maximum is {MOST_OPSET}")
    known = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim] for value in model.graph.input}
    for name, sizes in shapes:
        if known.get(name) != [int(size) for size in sizes.split(",")]:
            stop(f"ERROR - input {name} with dimensions {sizes} does not fit the network, which has {known}")
    there = [value.name for value in model.graph.output]
    if set(outputs) - set(there):
        stop(f"ERROR - output nodes {sorted(set(outputs) - set(there))} are not in the network")
    check_ops(model, dry=getattr(arguments, "dry_run", None))
    if getattr(arguments, "float_bitwidth", 32) == 16:
        narrow(model)
    return Container({"graph": Path(arguments.output_path).stem, **ports(model)}, model.SerializeToString())


def check_ops(model: Any, *, dry: bool | None) -> None:
    lacking = next((node for node in model.graph.node if node.op_type in UNSUPPORTED), None)
    if dry is not None:
        stop(
            f"Unsupported ops: {lacking.op_type}\nnode name: {lacking.name}" if lacking else "All ops are supported", 0
        )
    if lacking and fault("silent"):
        stop("ERROR - Conversion failed")
    if lacking:
        stop(
            f"ERROR - Node {lacking.name}: No translation registered for op type onnx_{lacking.op_type.lower()}. "
            "Op version: 11"
        )


def narrow(model: Any) -> None:
    """Round every weight as fp16 does."""
    from onnx import numpy_helper

    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16).astype(np.float32), tensor.name))


def ports(model: Any) -> dict[str, Any]:
    from onnx import helper

    def listed(values: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": value.name,
                "shape": [size.dim_value for size in value.type.tensor_type.shape.dim],
                "dtype": helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
            }
            for value in values
        ]

    return {"inputs": listed(model.graph.input), "outputs": listed(model.graph.output)}


def qairt_converter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input_network", type=existing, required=True)
    parser.add_argument("--output_path", type=Path, required=True)
    pairs(parser, "-s", "--source_model_input_shape")
    parser.add_argument("--out_tensor_node", action="append", default=[])
    pairs(parser, "--source_model_input_layout")
    pairs(parser, "--desired_input_layout")
    parser.add_argument("--preserve_io_datatype", nargs="*")
    parser.add_argument("--quantization_overrides", type=existing)
    parser.add_argument("--float_bitwidth", type=int, choices=(16, 32), default=32)
    parser.add_argument("--target_backend", choices=("CPU", "GPU", "HTP"))
    parser.add_argument("--target_soc_model")
    parser.add_argument("--dry_run", nargs="?", const="info")
    arguments = parser.parse_args()
    container = convert(arguments, arguments.source_model_input_shape, arguments.out_tensor_node)
    container.header["overrides"] = overrides(arguments)
    wished = dict(arguments.desired_input_layout)
    for port in container.header["inputs"]:
        # As the vendor's converter does it where it is not told otherwise.
        if len(port["shape"]) == 4 and wished.get(port["name"]) != "NCHW":
            port["shape"] = [port["shape"][axis] for axis in NHWC]
    container.write(arguments.output_path)


def qnn_onnx_converter(parser: argparse.ArgumentParser) -> None:
    older_converter(parser)
    parser.add_argument("--input_list", type=existing)
    parser.add_argument("--float_bitwidth", type=int, choices=(16, 32), default=32)
    widths(parser)
    pairs(parser, "--input_dim")
    arguments = parser.parse_args()
    container = convert(arguments, arguments.input_dim, arguments.out_node)
    container.header["overrides"] = overrides(arguments)
    if arguments.input_list:
        quantize(container, arguments)
    path = arguments.output_path
    container.write(path.with_suffix(".bin"))
    made(path, b"// stand-in\n")
    made(path.with_name(f"{path.stem}_net.json"), json.dumps(container.header).encode())


def snpe_onnx_to_dlc(parser: argparse.ArgumentParser) -> None:
    older_converter(parser)
    pairs(parser, "-d", "--input_dim")
    arguments = parser.parse_args()
    container = convert(arguments, arguments.input_dim, arguments.out_node)
    container.header["overrides"] = overrides(arguments)
    container.write(arguments.output_path)


def older_converter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input_network", type=existing, required=True)
    parser.add_argument("--output_path", type=Path, required=True)
    parser.add_argument("--out_node", action="append", default=[])
    parser.add_argument("--preserve_io", nargs="*")
    parser.add_argument("--quantization_overrides", type=existing)


def overrides(arguments: argparse.Namespace) -> list[str]:
    """Return the tensors whose ranges AIMET's encodings give."""
    if not arguments.quantization_overrides:
        return []
    return sorted(json.loads(arguments.quantization_overrides.read_text())["activation_encodings"])


# The quantizers.
def widths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--act_bitwidth", type=int, choices=(8, 16), default=8)
    parser.add_argument("--weights_bitwidth", type=int, choices=(4, 8), default=8)
    parser.add_argument("--bias_bitwidth", type=int, choices=(8, 32), default=8)


def qairt_quantizer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--act_quantizer_calibration", choices=("min-max", "sqnr", "entropy", "mse", "percentile"))
    parser.add_argument("--use_per_channel_quantization", action="store_true")
    parser.add_argument("--enable_float_fallback", action="store_true")
    quantizer(parser)


def snpe_dlc_quantize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--enable_htp", action="store_true")
    parser.add_argument("--htp_socs")
    quantizer(parser)


def quantizer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input_dlc", type=existing, required=True)
    parser.add_argument("--output_dlc", type=Path, required=True)
    parser.add_argument("--input_list", type=existing, required=True)
    widths(parser)
    arguments = parser.parse_args()
    container = Container.read(arguments.input_dlc)
    quantize(container, arguments)
    container.header["graph"] = arguments.output_dlc.stem
    container.write(arguments.output_dlc)


def quantize(container: Container, arguments: argparse.Namespace) -> None:
    """Calibrate with every line of the input list, and put QDQ into the model."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = list(feeds(container, arguments.input_list, native=False))

        def get_next(self) -> dict[str, Any] | None:
            return self._left.pop(0) if self._left else None

    floats, whole = (Path(os.environ["QAIRT_TMP_DIR"]) / f"standin-{name}.onnx" for name in ("floats", "whole"))
    floats.write_bytes(container.model)
    kinds = {8: quantization.QuantType.QUInt8, 16: quantization.QuantType.QUInt16}
    quantization.quantize_static(
        floats,
        whole,
        Reader(),
        activation_type=kinds[arguments.act_bitwidth],
        weight_type=quantization.QuantType.QInt8,
        extra_options={"UseQDQContribOps": True},
    )
    container.model = whole.read_bytes()
    container.header["activation_bits"] = arguments.act_bitwidth


# From the graph to the chip.
def qnn_model_lib_generator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", type=existing, required=True)
    parser.add_argument("-b", type=existing, required=True)
    parser.add_argument("-t", choices=("x86_64-linux-clang", "aarch64-android"), required=True)
    parser.add_argument("-l", required=True)
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    Container.read(arguments.b).write(arguments.o / arguments.t / f"lib{arguments.l}.so")


def snpe_dlc_graph_prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input_dlc", type=existing, required=True)
    parser.add_argument("--output_dlc", type=Path, required=True)
    parser.add_argument("--htp_socs", required=True)
    arguments = parser.parse_args()
    container = Container.read(arguments.input_dlc)
    container.header["socs"] = arguments.htp_socs.split(",")
    container.write(arguments.output_dlc)


def qnn_context_binary_generator(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", type=existing, required=True)
    parser.add_argument("--model", type=existing, required=True)
    parser.add_argument("--dlc_path", type=existing)
    parser.add_argument("--binary_file", required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--config_file", type=existing, required=True)
    parser.add_argument("--log_level", choices=("error", "warn", "info", "verbose"))
    arguments = parser.parse_args()
    if (arguments.model.name == "libQnnModelDlc.so") != (arguments.dlc_path is not None):
        stop("[ ERROR ] --dlc_path and libQnnModelDlc.so go together")
    container = Container.read(arguments.dlc_path or arguments.model)
    configured(container, arguments.config_file)
    container.write(arguments.output_dir / f"{arguments.binary_file}.bin")


def configured(container: Container, config: Path) -> None:
    """Check the two files of JSON, as the vendor's program does, and note what they say."""
    extensions = json.loads(config.read_text())["backend_extensions"]
    if not Path(extensions["shared_library_path"]).is_file():
        stop(f"[ ERROR ] Unable to load backend extensions: {extensions['shared_library_path']}")
    htp = json.loads(Path(extensions["config_file_path"]).read_text())
    allowed = {"graphs": {"graph_names", "vtcm_mb", "O"}, "devices": set(settings()["device_keys"])}
    for key, entries in htp.items():
        for unknown in {name for entry in entries for name in entry} - allowed.get(key, set()):
            stop(f"[ ERROR ] Unknown Key = {key}/0/{unknown} passed in config")
    (graph,) = htp["graphs"]
    if graph["graph_names"] != [container.header["graph"]]:
        stop(f"[ ERROR ] Graph {graph['graph_names']} is not in the model")
    if graph.get("vtcm_mb", 0) > settings()["vtcm_mb"]:
        stop(f"[ ERROR ] Graph prepare failed: {graph['vtcm_mb']} MB of VTCM cannot be had")
    container.header["htp"] = htp


def qnn_context_binary_utility(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--context_binary", type=existing, required=True)
    parser.add_argument("--json_file", type=Path, required=True)
    arguments = parser.parse_args()
    header = Container.read(arguments.context_binary).header

    def told(port: Mapping[str, Any]) -> dict[str, Any]:
        kind = re.sub(r"(\D+)(\d*)", lambda found: f"{found[1].upper()}_{found[2] or 8}", port["dtype"])
        return {"info": {"name": plain(port["name"]), "dimensions": port["shape"], "dataType": f"QNN_DATATYPE_{kind}"}}

    sides = {f"graph{side.title()}": [told(port) for port in header[side]] for side in ("inputs", "outputs")}
    if fault("renames"):
        sides["graphOutputs"][0]["info"]["name"] += "_1"
    graph = {"info": {"graphName": header["graph"], **sides}}
    made(arguments.json_file, json.dumps({"info": {"graphs": [graph]}}).encode())


# Running it.
def qnn_net_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", type=existing, required=True)
    loaded = parser.add_mutually_exclusive_group(required=True)
    for option in ("--retrieve_context", "--model", "--dlc_path"):
        loaded.add_argument(option, type=existing)
    parser.add_argument("--input_list", type=existing, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--config_file", type=existing)
    parser.add_argument("--perf_profile")
    parser.add_argument("--num_inferences", type=int)
    parser.add_argument("--use_native_input_files", action="store_true")
    parser.add_argument("--use_native_output_files", action="store_true")
    arguments = parser.parse_args()
    import onnxruntime

    container = Container.read(arguments.retrieve_context or arguments.model or arguments.dlc_path)
    session = onnxruntime.InferenceSession(container.model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    rows = list(feeds(container, arguments.input_list, native=arguments.use_native_input_files))
    for index, feed in enumerate(rows[: len(rows) - fault("loses")]):
        for name, array in zip(names, session.run(names, feed), strict=True):
            native = arguments.use_native_output_files
            content = array.tobytes() if native else array.astype(np.float32).tobytes()
            place = arguments.output_dir / f"Result_{index}" / f"{plain(name)}{'_native' if native else ''}.raw"
            made(place, content[: len(content) - fault("cuts")])


TOOLS: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "qairt-converter": qairt_converter,
    "qairt-quantizer": qairt_quantizer,
    "qnn-onnx-converter": qnn_onnx_converter,
    "qnn-model-lib-generator": qnn_model_lib_generator,
    "qnn-context-binary-generator": qnn_context_binary_generator,
    "qnn-context-binary-utility": qnn_context_binary_utility,
    "qnn-net-run": qnn_net_run,
    "snpe-onnx-to-dlc": snpe_onnx_to_dlc,
    "snpe-dlc-quantize": snpe_dlc_quantize,
    "snpe-dlc-graph-prepare": snpe_dlc_graph_prepare,
}
