"""The step `patch`: let somebody's own code change an ONNX graph.

Nothing that this step says or makes is believed: the code runs in its process. The step `rewrite`, which has no such
code in it, checks and compares the file afterwards as it does any other.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from runtimes.contract import Json, Kind
from runtimes.kit.work import Work, fail
from runtimes.reference import external, foreign, gates
from runtimes.reference.rewrite import MODEL, read, save

FUNCTION = "patch"
"""The function that the code defines: it is given the model, and changes it or returns another."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchOptions:
    """What `patch` is told: Python code that defines `patch(model: onnx_ir.Model) -> onnx_ir.Model | None`."""

    code: str


def patch(work: Work) -> dict[str, Json]:
    """Make `model` of the input `model`; nothing is found out about it.

    Raises:
        Failed: the code raises, or defines no `patch`, or that returns no model.
    """
    options = work.options(PatchOptions)
    source = work.input("model") / MODEL
    folder = work.output("model")
    folder.mkdir()
    proto = gates.parse(source)
    model = read(proto, source.parent)
    with foreign.wall("the patch", kind=Kind.REWRITE):
        names: dict[str, object] = {"__name__": FUNCTION}
        exec(compile(options.code, "patch.py", "exec"), names)  # noqa: S102 - this is what the step is for; it is caged
        function = names.get(FUNCTION)
        if not callable(function):
            fail(Kind.REWRITE, "the patch: defines no function patch(model); write `def patch(model): ...`")
        made = function(model)
        if made is not None and not isinstance(made, ir.Model):
            fail(Kind.REWRITE, f"the patch: returned {type(made).__name__}; return the onnx_ir.Model, or nothing")
        save(made or model, folder / MODEL, outside=bool(external.locations(proto)))
    return {}
