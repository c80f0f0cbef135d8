"""The tools: for each command of aipc that a client needs, what it takes and how it is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtimes.contract import Json

SHARED = {"engine": ("--engine", "--base-image"), "matrix": ("--matrix",), "runs": ("--runs",)}
"""What the server is started with, and hands on to the commands that take it."""

_MODEL = "a model of matrix.toml, a file (.onnx, .pt2, .pth, .safetensors), or module:function"
_SHAPE = "another input size: 64x96, or a whole shape, 1x3x64x96"
_SOURCE = "the folder of a module:function"
_CELL = "model[#shape]/runtime/precision[@target], as `deploy` and `plan` write it"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A command as a tool.

    Attributes:
        name: of both.
        title: for people.
        description: for a model.
        takes: the arguments by name: each a description, or a JSON schema.
        places: those that are no options, in the order of the command line; all but lists must be given.
        ours: those that the command does not know.
        shared: which of `SHARED` it takes.
        writes: it makes files, in the folder of the reports.
    """

    name: str
    title: str
    description: str
    takes: Mapping[str, Json]
    places: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    writes: bool = False

    @property
    def schema(self) -> dict[str, Json]:
        """The JSON schema of its arguments."""
        texts = {name: {"type": "string", "description": each} for name, each in self.takes.items() if _is_text(each)}
        required = [name for name in self.places if name in texts]
        return {
            "type": "object",
            "properties": {**self.takes, **texts},
            "required": required,
            "additionalProperties": False,
        }

    def command(self, given: Mapping[str, Json], start: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command line for the arguments `given`, of a server that was started with the options `start`."""
        shared = {option: start[option] for each in self.shared for option in SHARED[each] if option in start}
        options = [f"{option}={value}" for option, value in shared.items()]
        for name, value in given.items():
            if name not in (*self.places, *self.ours):
                options += [f"--{name}={each}" for each in (value if isinstance(value, list) else [value])]
        places: list[str] = []
        for name in self.places:
            value = given.get(name, [])
            places += value if isinstance(value, list) else [value]
        return (self.name, "--json", *options, "--", *places)


def _is_text(of: Json) -> bool:
    return isinstance(of, str)


def _list(description: str) -> Json:
    return {"type": "array", "items": {"type": "string"}, "description": description}


COMMANDS = (
    Tool(
        name="deploy",
        title="Deploy a model",
        description="Convert a model for a runtime, run the artefact, and have the judge compare it with PyTorch. Only "
        "the verdict `agrees` counts as deployed. Takes seconds to many minutes, more where an environment has to be "
        "built; the same call again does no work that is done already.",
        takes={
            "model": f"{_MODEL}; or a whole cell, {_CELL}, and then no runtime, precision, target or shape",
            "runtime": "the toolchain; `list` names them",
            "precision": "for instance fp16; the runtime's default otherwise",
            "target": "what to build for; the runtime's default otherwise",
            "shape": _SHAPE,
            "source": _SOURCE,
            "calibration": "a folder of pictures, .npy or .npz files to quantise with",
            "rewrite": _list("rewrites of the ONNX model that are done before it is converted, by name, in order"),
        },
        places=("model",),
        shared=("engine", "matrix", "runs"),
        writes=True,
    ),
    Tool(
        name="inspect",
        title="Look into a model file",
        description="What is in a model file, and which gates would keep it from being deployed as it is.",
        takes={"file": "the model file"},
        places=("file",),
        shared=("engine",),
    ),
    Tool(
        name="judge",
        title="Judge an ONNX file",
        description="Whether an ONNX file still computes what a model computes, for instance after a change of its "
        "graph: ONNX Runtime runs it, and the judge compares. No runtime takes part.",
        takes={
            "model": f"what it has to agree with: {_MODEL}",
            "file": "the ONNX file",
            "precision": "whose tolerances hold: fp32 by default, or fp16, int8",
            "shape": _SHAPE,
            "source": _SOURCE,
        },
        places=("model", "file"),
        shared=("engine", "matrix"),
    ),
    Tool(
        name="report",
        title="Read a report",
        description="The report of a cell that was deployed: verdict, reasons, failure, gates, measures; other parts "
        "by their keys.",
        takes={
            "cell": _CELL,
            "keys": _list("keys of report.json in place of the usual ones, for instance placement, bisection, stages"),
        },
        places=("cell",),
        ours=("keys",),
        shared=("runs",),
    ),
    Tool(
        name="list",
        title="Models and runtimes",
        description="The models, runtimes, precisions and targets that there are.",
        takes={},
        shared=("matrix",),
    ),
    Tool(
        name="plan",
        title="Cells of this project",
        description="The cells of matrix.toml: what this project deploys.",
        takes={"select": _list("patterns such as esrgan*/openvino/*; all cells otherwise")},
        places=("select",),
        shared=("matrix",),
    ),
)
"""The tools that are commands; `skills` is the one that is none."""
