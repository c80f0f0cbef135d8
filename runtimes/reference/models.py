"""The reference: a model that answers arrays with arrays, whatever it was loaded from.

Only what a source needs is imported, since importing PyTorch and its neighbours takes longer than most models.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runtimes.contract import Kind
from runtimes.kit.tensors import Array
from runtimes.kit.work import refuse
from runtimes.reference import foreign, imports, sizes
from runtimes.reference.options import Content, Input, ModelOptions, Origin

SEED = 0
"""What PyTorch's, numpy's and Python's generators start from before a model is built, in every step alike."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """A loaded model.

    Attributes:
        kind: who answers: "pytorch" or "onnxruntime".
        inputs: what it takes, in order, every size known.
        outputs: the names of its outputs, in order; () where only an answer tells how many there are.
        parameters: how many numbers it has learned.
        notes: what a report should say about it.
        answer: from the input arrays, in order, to the output arrays, in order.
        module: the torch.nn.Module, whose call gives a tuple of tensors; None where there is none.
        file: the ONNX file, where it came from one.
        reaching: of such a file, see `uses.reaching`.
    """

    kind: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    parameters: int
    notes: tuple[str, ...]
    answer: Callable[[Sequence[Array]], list[Array]]
    module: Any = None
    file: Path | None = None
    reaching: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def run(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name for the inputs of one sample.

        Raises:
            Failed: the model does not run on them.
            Refused: it has another number of outputs than names were given for.
        """
        arrays = self.answer([sample[each.name] for each in self.inputs])
        return dict(zip(self.name(len(arrays)), arrays, strict=True))

    def name(self, count: int) -> tuple[str, ...]:
        """Return the names of `count` outputs: those asked for, or `output`, `output_1`, … where none are.

        Raises:
            Refused: names are asked for, but another number of them.
        """
        if self.outputs and len(self.outputs) != count:
            refuse(
                Kind.OPTION,
                f"outputs: {len(self.outputs)} names ({', '.join(self.outputs)}), the model returns {count} tensors",
                hint="name every output, in the order in which the model returns them",
            )
        return self.outputs or tuple("output" if index == 0 else f"output_{index}" for index in range(count))


def load(options: ModelOptions, weights: Path | None, source: Path | None) -> Reference:
    """Return the model that `options` speak of.

    Args:
        options: what it is.
        weights: the folder with its files; None where a function needs none.
        source: the folder with a function's code, put on sys.path.

    Raises:
        Refused: a file is not what it should be, is not trusted, or leaves a size open that nobody gave.
        Failed: the model's own code does not work.
    """
    if options.source is Origin.ONNX:
        from runtimes.reference import onnx_file

        return onnx_file.load(options, only_file(weights, ".onnx"))
    with imports.uncollected():
        import torch

        # Every generator that a model's code may draw from, so that it builds the same model in every step.
        random.seed(SEED)
        np.random.seed(SEED)  # noqa: NPY002 - the legacy generator is the one that model code draws from
        torch.manual_seed(SEED)
    if options.source is Origin.EXPORTED:
        from runtimes.reference import programs

        module, inputs, notes = programs.load(only_file(weights, ".pt2"), options)
        return wrap(module, inputs, options.outputs, notes)
    module, inputs, notes = _load_module(options, weights, source)
    with foreign.wall("the model cannot be made ready for inference"):
        widened = sorted({str(each.dtype).removeprefix("torch.") for each in module.parameters()} - {"float32"})
        if widened:
            notes = (*notes, f"weights of {', '.join(widened)} are computed with in float32")
        return wrap(module.float().eval(), inputs, options.outputs, notes)


def wrap(module: Any, inputs: tuple[Input, ...], outputs: tuple[str, ...], notes: tuple[str, ...]) -> Reference:
    """Return the reference that a PyTorch module is; calling the module gives a flat tuple from now on."""
    # A hook, not a module around it: layers keep the names that its author knows them by.
    module.register_forward_hook(lambda _module, _arguments, outcome: tuple(_flatten(outcome)))
    return Reference(
        kind="pytorch",
        inputs=inputs,
        outputs=outputs,
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        notes=notes,
        answer=lambda arrays: _forward(module, inputs, arrays),
        module=module,
    )


def only_file(folder: Path | None, *suffixes: str) -> Path:
    """Return the one file in `folder` with one of `suffixes`.

    Raises:
        Refused: there is none, or more than one.
    """
    held = sorted(path for path in folder.iterdir() if path.is_file()) if folder else []
    found = [path for path in held if path.suffix.lower() in suffixes]
    if len(found) != 1:
        words = ", ".join(path.name for path in held) or "nothing"
        refuse(
            Kind.OPTION,
            f"weights: holds {words}; exactly one file {' or '.join(suffixes)} is needed",
            hint="name that file under weights in matrix.toml",
        )
    return found[0]


def place(options: ModelOptions, channels: int, name: str) -> tuple[Input, ...]:
    """Return the declared inputs or, where there are none, one picture of `options.shape`.

    Args:
        options: the model's.
        channels: how many the model takes.
        name: the file, for the error.

    Raises:
        Refused: neither inputs nor a shape are given.
    """
    if options.inputs:
        return options.inputs
    dims: list[int | str] = [1, channels, "H", "W"]
    return (Input(name="input", shape=sizes.settle("input", dims, options.shape, name), content=Content.PICTURE),)


def _load_module(
    options: ModelOptions, weights: Path | None, source: Path | None
) -> tuple[Any, tuple[Input, ...], tuple[str, ...]]:
    if options.source is Origin.FUNCTION:
        from runtimes.reference import functions

        if not options.inputs:
            refuse(
                Kind.OPTION,
                f"function {options.function}: no inputs; a function does not tell them",
                hint="list the inputs in matrix.toml, each with name and shape",
            )
        module = functions.build(options.function, weights, source, trusted=options.trusted)
        return module, options.inputs, functions.notes_of(module)
    from runtimes.reference import checkpoints

    if options.source is Origin.NCNN:
        param, buffer = only_file(weights, ".param"), only_file(weights, ".bin")
        module, channels = checkpoints.from_ncnn(param, buffer, options.architecture)
        return module, place(options, channels, param.name), ()
    path = only_file(weights, *checkpoints.SUFFIXES)
    module, channels, notes = checkpoints.from_file(path, trusted=options.trusted)
    if not channels and not options.inputs:
        refuse(
            Kind.OPTION,
            f"{path.name}: holds a whole module, which does not tell its inputs",
            hint="list the inputs in matrix.toml, each with name and shape",
        )
    return module, place(options, channels, path.name), notes


def _flatten(outcome: Any) -> list[Any]:
    """Return the tensors of what a model returned, in order; None is passed over."""
    import torch

    if outcome is None:
        return []
    if isinstance(outcome, torch.Tensor):
        return [outcome]
    if isinstance(outcome, Mapping):
        return [tensor for value in outcome.values() for tensor in _flatten(value)]
    if isinstance(outcome, (list, tuple)):
        return [tensor for value in outcome for tensor in _flatten(value)]
    return refuse(
        Kind.INVALID_MODEL,
        f"the model returns a {type(outcome).__name__}, not tensors",
        hint="return a tensor, or a tuple, list or dict of tensors",
    )


def _forward(module: Any, inputs: Sequence[Input], arrays: Sequence[Array]) -> list[Array]:
    import torch

    shapes = ", ".join(f"{each.name} {each.dtype} {list(each.shape)}" for each in inputs)
    hint = "check the shapes and types of its inputs"
    with foreign.wall(f"the model does not run on {shapes}", hint=hint), torch.no_grad():
        # Copies, since a model may work in place.
        outcome = module(*(torch.from_numpy(array.copy()) for array in arrays))
        answers = [tensor.cpu().numpy() for tensor in outcome]
    if not answers:
        refuse(
            Kind.INVALID_MODEL,
            "the model returns no tensor",
            hint="return a tensor, or a tuple, list or dict of tensors",
        )
    return answers
