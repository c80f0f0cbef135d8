"""The RKNN adapter: ONNX to Rockchip's `.rknn` with rknn-toolkit2, and its samples through the toolkit's simulator.

The toolkit's success is believed only after this, since none of it comes as an error:

- it builds a model whose weights file is missing: the weights are looked for first;
- it builds nodes that the chip has no kernel for, the simulator calculates them, and one line of its log says so;
- it says what the artefact takes and gives only inside the file: the file is read back and compared;
- a segmentation fault ends it: each build is a process of its own (`build.py`), and its last words are kept;
- a rule of its graph optimiser that fails on a model names itself: it is disabled, and the build is done again;
- its graph optimiser may not end: where nothing comes for long, rules are disabled, and the build is done again.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from runtimes import contract
from runtimes.contract import Json, Kind, Misused
from runtimes.kit import quantization, tensors
from runtimes.kit.ports import Port, differences
from runtimes.kit.work import Failed, Refused, Work, fail, refuse
from runtimes.rknn import artefact, build, failures, layers, watch
from runtimes.rknn.build import Options, Order, Report, Stage

NPU = "NPU"
MOST_RULES = 8
"""So many rules of the graph optimiser are disabled for one model, one build after the other, before it is given up."""
FAILED, ENDLESS = "failed", "did not end"
INTEGERS = re.compile(r"INT8|UINT8")
PRODUCTS = re.compile(r"(ex)?(Conv(?!ert)|MatMul|Gemm)")
"""What the toolkit's names of layers that are convolutions and matrix products start with."""
WIDER = 8.0
"""Calibration data may reach so many times as far as the samples do, or stay so many times nearer to zero."""

_TERMINAL = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class _Built:
    """One build that ended, well or not.

    Attributes:
        folder: what it left behind.
        code: its exit code, negative for a signal.
        lines: what it printed, without colours.
        disabled: the rules that it was not to use, each with what it did before: `failed` or `did not end`.
    """

    folder: Path
    code: int
    lines: Sequence[str]
    disabled: Mapping[str, str]

    @property
    def report(self) -> Report:
        """How far it came."""
        path = self.folder / build.REPORT
        return contract.read(Report, path) if path.is_file() else Report(stage=Stage.CONFIG)


def versions() -> Mapping[str, str]:
    """Return what does the work."""
    return {name: metadata.version(name) for name in ("rknn-toolkit2", "onnx", "onnxruntime", "numpy", "torch")}


def convert(work: Work) -> Mapping[str, Json]:
    """Write `out/artifact/model.rknn` in float16 for `in/model/model.onnx`, and the simulator's answers."""
    options = work.options(Options)
    samples = _load(work, options, "samples")
    del samples
    return _make(work, options, quantized=False)


def quantize(work: Work) -> Mapping[str, Json]:
    """Do as `convert`, in int8 (the toolkit's w8a8), with the ranges of the sample set `in/calibration`."""
    options = work.options(Options)
    samples = _load(work, options, "samples")
    calibration = _load(work, options, "calibration")
    _check_ranges(samples, calibration)
    folder = _folder(work)
    _write_dataset(folder, options, calibration)
    return _make(work, options, quantized=True)


def _make(work: Work, options: Options, *, quantized: bool) -> Mapping[str, Json]:
    model = _read_model(work.input("model"))
    folder = _folder(work)
    # The toolkit quantises no model that is quantised already, and keeps the scales of one when it is told not to.
    own = quantized and quantization.is_quantized(work.input("model") / "model.onnx", wide=False)
    built = _build(work, folder, quantized=quantized and not own)
    _check_ended(built, model)
    _check_lowered(built.lines)
    table = _layers(built.lines)
    _check_precision(options.precision, table, model, quantized=quantized)
    described = _describe(folder / build.ARTIFACT)
    _check_made_for(options, described)
    notes = [*_dtype_notes(options, described), *_rule_notes(built.disabled)]
    notes += _share_notes(options.precision, table, quantized=quantized)
    notes += ["the scales are the model's own; the calibration data was not used"] if own else []
    artifact = work.output("artifact")
    artifact.mkdir()
    shutil.move(folder / build.ARTIFACT, artifact / build.ARTIFACT)
    shutil.move(folder / build.OUTPUTS, work.output("outputs"))
    toolkit = f"rknn-toolkit2 {described.toolkit}"
    return {
        "placement": [{"node": layer.node, "op": layer.op, "device": layer.device} for layer in table],
        "io": {side: _listed(getattr(described, side), described) for side in ("inputs", "outputs")},
        "device": NPU,
        "execution": {
            "target_platform": options.target,
            "layer_dtypes": dict(sorted(Counter(layer.dtype for layer in table).items())),
            "disable_rules": list(built.disabled),
        },
        "notes": notes,
        "simulated": f"the RKNN simulator of {toolkit}",
    }


def _folder(work: Work) -> Path:
    """Return the folder where builds happen: what the toolkit drops there must not reach out/."""
    folder = work.layout.tmp / "rknn"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _read_model(folder: Path) -> Any:
    """Return the ONNX model without its weights, after a look whether all of them are there."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    source = folder / "model.onnx"
    if not source.is_file():
        raise Misused("in/model: holds no model.onnx; export writes it")
    try:
        model = onnx.load_model(source, load_external_data=False)
    except DecodeError as error:
        fail(Kind.INVALID_MODEL, f"model.onnx: {error}", hint="check the file with `aipc inspect`")
    for tensor in model.graph.initializer:
        _check_stored(folder, tensor)
    return model


def _check_stored(folder: Path, tensor: Any) -> None:
    """Refuse a tensor whose file is missing or too short: the toolkit builds without a word, of whatever it has."""
    if tensor.data_location != tensor.EXTERNAL:
        return
    stored = {entry.key: entry.value for entry in tensor.external_data}
    location = stored.get("location", "")
    needed = int(stored.get("offset", 0)) + int(stored.get("length", 0))
    path = folder / location
    present = path.stat().st_size if path.is_file() else -1
    if present < needed:
        there = f"has {present} bytes" if present >= 0 else "is not there"
        message = f"model.onnx: the weights {tensor.name!r} need {needed} bytes of {location}, which {there}"
        fail(Kind.INVALID_MODEL, message, hint="keep the .onnx file and its data file together")


def _load(work: Work, options: Options, name: str) -> Mapping[str, Mapping[str, tensors.Array]]:
    """Return a sample set whose tensors are those that the model takes."""
    samples = tensors.load_samples(work.input(name))
    for sample, feeds in samples.items():
        given = [Port(name=key, shape=array.shape, dtype=array.dtype.name) for key, array in feeds.items()]
        if wrong := differences("input", options.inputs, given):
            raise Misused(
                f"in/{name}: {sample!r} does not fit the model: {'; '.join(wrong)}; prepare makes the samples"
            )
    return samples


def _check_ranges(
    samples: Mapping[str, Mapping[str, tensors.Array]], calibration: Mapping[str, Mapping[str, tensors.Array]]
) -> None:
    """Refuse calibration data on another scale than the samples: the toolkit builds with any, and computes nonsense."""
    for name, array in next(iter(samples.values())).items():
        if array.dtype.kind != "f":
            continue
        ours, theirs = (
            max(float(np.abs(feeds[name]).max(initial=0.0)) for feeds in sets.values())
            for sets in (samples, calibration)
        )
        if not ours / WIDER <= theirs <= ours * WIDER:
            refuse(
                Kind.OPTION,
                f"calibration: input {name!r} reaches {theirs:g}, but {ours:g} in the samples that are judged",
                hint="give calibration data that is scaled as the model's inputs are",
            )


def _write_dataset(folder: Path, options: Options, calibration: Mapping[str, Mapping[str, tensors.Array]]) -> None:
    """Write the calibration data as the toolkit reads it: a line for each sample, an .npy for each input of it."""
    lines = []
    for number, feeds in enumerate(calibration.values()):
        names = [f"calibration-{number}-{index}.npy" for index in range(len(options.inputs))]
        for name, port in zip(names, options.inputs, strict=True):
            np.save(folder / name, build.as_taken(feeds[port.name]))
        lines.append(" ".join(names))
    (folder / build.DATASET).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _build(work: Work, folder: Path, *, quantized: bool) -> _Built:
    """Build in a process of its own; where a rule of the graph optimiser fails or does not end, again without it."""
    disabled: dict[str, str] = {}
    before = ""
    while True:
        contract.write(Order(quantized=quantized, disabled_rules=tuple(disabled)), folder / build.ORDER)
        code, lines, stalled = _start(work, folder, watched=len(disabled) < MOST_RULES)
        rule = failures.crashing_rule(lines) if code else ""
        if stalled:
            fresh, before = _endless(disabled, stalled, before), stalled
        elif rule and rule not in disabled and len(disabled) < MOST_RULES:
            fresh = {**disabled, rule: FAILED}
        else:
            return _Built(folder=folder, code=code, lines=lines, disabled=disabled)
        disabled = fresh
        work.progress(f"building again without the rule {', '.join(disabled)}")


def _endless(disabled: Mapping[str, str], stalled: str, before: str) -> dict[str, str]:
    """Return what to disable after a build that got nowhere.

    At first the rules that search. Where it ends at the same place without them, it was not their fault, but that of
    the rule before it got nowhere.

    Args:
        disabled: what it was not to use.
        stalled: the rule that it followed last.
        before: the rule that the last build followed last which got nowhere, "" for none.
    """
    if stalled != before and not set(watch.SEARCHING) <= set(disabled):
        return {**disabled, **dict.fromkeys(watch.SEARCHING, ENDLESS)}
    kept = {rule: why for rule, why in disabled.items() if stalled != before or rule not in watch.SEARCHING}
    return {**kept, stalled: ENDLESS}


def _start(work: Work, folder: Path, *, watched: bool) -> tuple[int, list[str], str]:
    """Return how a build ended, what it printed, and the rule after which its optimiser got nowhere, or "".

    All that it prints goes into the log as it comes.
    """
    argv = (sys.executable, "-P", "-m", "runtimes.rknn.build", str(work.layout.root), str(folder))
    (folder / build.REPORT).unlink(missing_ok=True)
    lines: list[str] = []
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
        watch.Watch(process, lines, quiet_seconds=watch.QUIET_SECONDS if watched else math.inf) as looking,
    ):
        assert process.stdout is not None  # noqa: S101 - it was asked for
        for raw in process.stdout:
            text = raw.decode("utf-8", "backslashreplace")
            sys.stdout.write(text)
            sys.stdout.flush()
            lines += [_TERMINAL.sub("", part) for part in re.split(r"[\r\n]+", text) if part]
    return process.returncode, lines, looking.stalled


def _check_ended(built: _Built, model: Any) -> None:
    """Raise what a build that did not end well stands for."""
    report = built.report
    if built.code == 0 and report.stage is Stage.DONE:
        return
    ops = {node.name: node.op_type for node in model.graph.node}
    if not report.raised and not report.returned:
        manner = contract.describe_exit(built.code)
        raise Failed(failures.died(report.stage, manner, built.lines, *failures.suspect(model)))
    failure, refuses = failures.describe(report.stage, built.lines, report.raised or report.returned, ops)
    raise Refused(failure) if refuses else Failed(failure)


def _check_lowered(lines: Sequence[str]) -> None:
    if nodes := layers.unlowered(lines):
        raise Refused(failures.without_kernel(nodes))


def _layers(lines: Sequence[str]) -> list[layers.Layer]:
    try:
        return layers.read(lines)
    except layers.BadTable as error:
        fail(Kind.TOOLCHAIN, f"where each layer runs is unknown: {error}")


def _check_precision(precision: str, table: Sequence[layers.Layer], model: Any, *, quantized: bool) -> None:
    """Fail for an artefact that has nothing of the precision that was asked for; `_share_notes` tells of a part.

    In whole numbers that is one without a layer in them. In floats it is one whose layers with weights all calculate
    in whole numbers: so the toolkit builds a model with QuantizeLinear and DequantizeLinear.
    """
    whole = [layer for layer in table if INTEGERS.fullmatch(layer.dtype)]
    if quantized and not whole:
        kinds = ", ".join(sorted({layer.dtype for layer in table}))
        fail(Kind.TOOLCHAIN, f"{precision} was asked for, but none of {len(table)} layers is; they are {kinds}")
    weighted = [layer for layer in table if PRODUCTS.match(layer.op)]
    own = any(node.op_type in quantization.WEIGHTED for node in model.graph.node)
    if not quantized and own and weighted and all(layer in whole for layer in weighted):
        fail(
            Kind.TOOLCHAIN,
            f"{precision} was asked for, but all {len(weighted)} convolutions and matrix products calculate in int8, "
            "since the model is quantised",
            hint="take int8, or give the model without QuantizeLinear and DequantizeLinear",
        )


def _share_notes(precision: str, table: Sequence[layers.Layer], *, quantized: bool) -> list[str]:
    """Return in words how many layers calculate in int8; nothing where it is all, or none, as asked for."""
    wide = Counter(layer.dtype for layer in table if not INTEGERS.fullmatch(layer.dtype))
    whole = len(table) - wide.total()
    if not quantized:
        # Truth values are INT8 to the toolkit too; a model that is quantised shows in its products.
        is_own = any(PRODUCTS.match(layer.op) and INTEGERS.fullmatch(layer.dtype) for layer in table)
        return [f"{whole} of {len(table)} layers calculate in int8, though {precision} was asked for"] if is_own else []
    if not wide:
        return []
    kinds = ", ".join(f"{count} in {dtype}" for dtype, count in sorted(wide.items()))
    return [f"{whole} of {len(table)} layers ({whole / len(table):.0%}) calculate in {precision}; the rest: {kinds}"]


def _describe(path: Path) -> artefact.Described:
    try:
        return artefact.read(path)
    except (artefact.BadArtefact, OSError) as error:
        fail(Kind.MISSING_RESULT, f"the toolkit reports success, but left no artefact that can be read: {error}")


def _check_made_for(options: Options, described: artefact.Described) -> None:
    """Refuse an artefact for another chip, of another toolkit, or of another model than was asked for."""
    installed = metadata.version("rknn-toolkit2")
    wrong = []
    if described.targets != (options.target,):
        wrong.append(f"it is for {', '.join(described.targets)} instead of {options.target}")
    if described.toolkit != installed:
        wrong.append(f"it is of toolkit {described.toolkit} instead of {installed}")
    for side in ("inputs", "outputs"):
        asked, found = getattr(options, side), getattr(described, side)
        told = [Port(name=port.name, shape=port.shape, dtype=_float_as(port, asked)) for port in found]
        wrong += differences(side.removesuffix("s"), asked, told)
        if [port.name for port in found] != [port.name for port in asked]:
            wrong.append(f"its {side} are {[port.name for port in found]}")
    if wrong:
        fail(Kind.TOOLCHAIN, f"the toolkit reports success, but the artefact is not what was asked: {'; '.join(wrong)}")


def _float_as(port: Port, asked: Sequence[Port]) -> str:
    """Return the element type of a port; a floating one is taken for the asked one, since the toolkit has only one."""
    wanted = next((each.dtype for each in asked if each.name == port.name), port.dtype)
    return wanted if wanted.startswith("float") and port.dtype.startswith("float") else port.dtype


def _dtype_notes(options: Options, described: artefact.Described) -> list[str]:
    asked = {port.name: port.dtype for port in (*options.inputs, *options.outputs)}
    ports = (*described.inputs, *described.outputs)
    return [
        f"{port.name!r} is {port.dtype} in the artefact, {asked[port.name]} in the model"
        for port in ports
        if port.dtype != asked[port.name]
    ]


def _rule_notes(disabled: Mapping[str, str]) -> list[str]:
    return [
        f"the rule {rule} of the toolkit's graph optimiser {why} on this model and was disabled"
        for rule, why in disabled.items()
    ]


def _listed(ports: Sequence[Port], described: artefact.Described) -> list[Json]:
    return [
        {"name": port.name, "shape": list(port.shape), "dtype": port.dtype, "layout": described.layouts[port.name]}
        for port in ports
    ]
