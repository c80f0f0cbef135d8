"""A model that is an ONNX file already: then ONNX Runtime, with nothing optimised, is the reference."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from runtimes.contract import Failure, Kind
from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Failed, Refused, refuse
from runtimes.reference import external, foreign, gates, sessions, structure, uses
from runtimes.reference.files import describe_input
from runtimes.reference.models import Reference
from runtimes.reference.options import Input, ModelOptions
from runtimes.reference.sizes import settle, settle_all

NOTE = "the model is an ONNX file: ONNX Runtime on the CPU, with nothing optimised, is the reference, not PyTorch"


def load(options: ModelOptions, path: Path) -> Reference:
    """Return the reference that an ONNX file is.

    Raises:
        Refused: a gate does not let it through, or it leaves a size open that `options` do not give.
    """
    # A size that is open is no defect here: `settle` closes it, and `copy` writes it down.
    refuse_unless(gates.check(path, gates.without("static_shapes", of=gates.ALL)), path.name)
    model = gates.parse(path)
    _refuse_containers(model, path.name)
    _refuse_types(model, path.name)
    fixed = {} if options.inputs else switches(model)
    inputs, notes = _inputs(model, options, path.name, list(fixed))
    outputs = options.outputs or tuple(value.name for value in model.graph.output)
    _same_names("outputs", outputs, [value.name for value in model.graph.output], path.name)
    session = sessions.start(path, optimised=False)

    def answer(arrays: Sequence[Array]) -> list[Array]:
        sample = {**fixed, **{each.name: array for each, array in zip(inputs, arrays, strict=True)}}
        try:
            return list(sessions.run(session, sample, outputs).values())
        except sessions.errors() as error:
            shapes = ", ".join(f"{each.name} {each.dtype} {list(each.shape)}" for each in inputs)
            where = f"{path.name} does not run on {shapes}: ONNX Runtime"
            failure = Failure(kind=Kind.INVALID_MODEL, message=f"{where}: {error}")
            raise Failed(foreign.out_of_memory(error, where) or failure) from error

    return Reference(
        kind="onnxruntime",
        inputs=inputs,
        outputs=outputs,
        parameters=count_parameters(model),
        notes=(NOTE, *notes, *(_tell_switch(name, value) for name, value in fixed.items())),
        answer=answer,
        file=path,
        reaching=uses.reaching(model),
    )


def copy(path: Path, folder: Path, shapes: Mapping[str, Sequence[int]], answers: Mapping[str, Array]) -> None:
    """Write the model at `path` to `folder` as `model.onnx`, byte for byte, with the data that lies outside it.

    Where it leaves sizes open, they are written down, and what was inferred from them is dropped: then it is the same
    graph in other bytes.

    Args:
        path: an ONNX file that the gates let through.
        folder: where to.
        shapes: the sizes of its inputs by name; one that is not there is a switch, and becomes a constant.
        answers: its outputs for one sample by name.
    """
    model = gates.parse(path)
    for location in external.locations(model):
        target = folder / location
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.parent / location, target)
    fixed = {name: value for name, value in switches(model).items() if name not in shapes}
    if not fixed and not structure.find_open_sizes(model, path):
        shutil.copyfile(path, folder / "model.onnx")
        return
    del model.graph.value_info[:]
    kept = [value for value in model.graph.input if value.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in fixed.items())
    for value in structure.inputs_of(model.graph):
        _close(value, shapes[value.name])
    for value in model.graph.output:
        _close(value, answers[value.name].shape)
    (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    if fixed:
        _inline_branches(folder / "model.onnx", outside=bool(external.locations(model)))


def _inline_branches(path: Path, *, outside: bool) -> None:
    """Put the branches that fixed switches choose in the place of each If: ONNX Runtime 1.32 trips over inner ones."""
    import onnx_ir as ir

    from runtimes.reference import edits, rewrite
    from runtimes.reference.rewrites import Given, find

    model = ir.load(path)
    edits.infer(model)
    find("inline_branches").rewrite(model, Given())
    edits.tidy(model)
    rewrite.save(model, path, outside=outside)


def switches(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the inputs that do nothing but choose between ways through the graph, each with the value to fix it to.

    Such an input is one whole number, like the sampling rate of an audio model; any artefact knows one way only.
    """
    found = {}
    for value in structure.inputs_of(model.graph):
        sizes = structure.sizes_of(value) or []
        single = all(size == 1 for size in sizes) and type_of(value) in {"int32", "int64"}
        if single and (compared := uses.of(model, value.name).compared):
            found[value.name] = np.full([1] * len(sizes), compared[0], type_of(value))
    return found


def refuse_unless(results: Sequence[gates.GateResult], name: str) -> None:
    """Refuse the user's file `name` where a gate does not hold.

    Raises:
        Refused: one does not.
    """
    for result in results:
        if not result:
            raise Refused(Failure(kind=result.kind or Kind.INVALID_MODEL, message=f"{name}: {gates.describe(results)}"))


def count_parameters(model: onnx.ModelProto) -> int:
    """Return how many floating numbers the model holds."""
    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16}
    count = 0
    for tensor in model.graph.initializer:
        if tensor.data_type in floats:
            size = 1
            for dim in tensor.dims:
                size *= dim
            count += size
    return count


def type_of(value: onnx.ValueInfoProto) -> str:
    """Return numpy's name of the type of a tensor, onnx's own where numpy has none, or what it is instead."""
    kind = value.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        return kind.removesuffix("_type").replace("_", " ")
    number = value.type.tensor_type.elem_type
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(number).name
    except KeyError:
        return str(onnx.TensorProto.DataType.Name(number))


def _tell_switch(name: str, value: Array) -> str:
    return (
        f"input {name} only chooses a way through the graph, by a comparison with {int(value.flat[0])}: "
        "it is fixed to that, and the artefact does not have it"
    )


def _inputs(
    model: onnx.ModelProto, options: ModelOptions, name: str, fixed: Sequence[str]
) -> tuple[tuple[Input, ...], tuple[str, ...]]:
    values = [value for value in structure.inputs_of(model.graph) if value.name not in fixed]
    # The checker has seen to it that an input has a rank.
    sizes = {value.name: structure.sizes_of(value) or [] for value in values}
    if options.inputs:
        _same_names("inputs", [each.name for each in options.inputs], list(sizes), name)
        for each in options.inputs:
            settle(each.name, sizes[each.name], each.shape, name)
        return options.inputs, ()
    shapes, chosen = settle_all(list(sizes.items()), options.shape, name)
    found = []
    for value, shape in zip(values, shapes, strict=True):
        use = uses.of(model, value.name)
        found.append(describe_input(value.name, shape, type_of(value), rows=use.rows, masks=use.masks))
    return tuple(each for each, _note in found), (*chosen, *(note for _each, note in found))


def _refuse_containers(model: onnx.ModelProto, name: str) -> None:
    for word, values in (("input", structure.inputs_of(model.graph)), ("output", model.graph.output)):
        for value in values:
            kind = value.type.WhichOneof("value")
            if kind not in {"tensor_type", None}:
                refuse(
                    Kind.INVALID_MODEL,
                    f"{name}: {word} {value.name} is a {type_of(value)}, not a tensor",
                    hint=f"a model takes and gives tensors alone: take {value.name} apart inside it, or leave it out",
                )


def _refuse_types(model: onnx.ModelProto, name: str) -> None:
    """Refuse outputs whose type does not travel; `describe_input` does the same for inputs."""
    for value in model.graph.output:
        if (dtype := type_of(value)) not in tensors.DTYPES:
            refuse(
                Kind.UNSUPPORTED_OP,
                f"{name}: output {value.name} has the type {dtype}, which is not supported",
                hint="cast it to float32 inside the model, or leave it out",
            )


def _same_names(word: str, asked: Sequence[str], held: Sequence[str], name: str) -> None:
    if sorted(asked) != sorted(held):
        refuse(
            Kind.OPTION,
            f"{name}: its {word} are {', '.join(held)}, not {', '.join(asked)}",
            hint=f"name the {word} as the file does, or none",
        )


def _close(value: onnx.ValueInfoProto, sizes: Sequence[int]) -> None:
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for size in sizes:
        shape.dim.add().dim_value = size
    if not shape.dim:
        shape.SetInParent()
