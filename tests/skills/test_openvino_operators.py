"""What OpenVINO takes, and calculates as ONNX Runtime does, is measured: the skill says the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from runtimes.contract import Kind
from tests.runtimes.openvino_jobs import Jobs, Made, reference
from tests.runtimes.rewrites import graphs
from tests.runtimes.rknn_ops import Case
from tests.runtimes.tensorrt_ops import cases
from tests.skills.skill import FOLDER, load, section_of

RANDOM = ("Bernoulli", "Multinomial", "RandomNormalLike")
OTHERWISE: Mapping[str, float | None] = {
    **{f"Reduce{op} H, W": None for op in ("L1", "LogSum", "LogSumExp")},
    "NonMaxSuppression": None,
    "Resize linear, antialias": 0.13,
    "RoiAlign": 0.04,
}
"""Case to how far it is off; None where the answer has another shape. OpenVINO 2026.4.1, its CPU plugin, f32."""

PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
import openvino
from runtimes.openvino import failures
core = openvino.Core()
for path in sorted(Path(sys.argv[1]).glob("*.onnx"), key=lambda path: int(path.stem)):
    try:
        model = openvino.convert_model(path)
        compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        feeds = np.load(path.with_suffix(".npz"))
        found = compiled([feeds[name] for name in feeds.files]).to_tuple()
        np.savez(path.with_name(path.stem + "-answer.npz"), *found)
        line = ["built", ""]
    except Exception as error:
        failure = failures.describe(error)
        line = [failure.kind.value, failure.op]
    print(json.dumps([path.stem, *line]))
"""


def test_what_openvino_refuses_or_calculates_otherwise_is_what_the_skill_says(
    tmp_path: Path, openvino_python: Path
) -> None:
    # Whoever is too old for ONNX Runtime has no answer to compare with.
    known = [each for each in cases() if each.form != "opset 6"]
    folder = tmp_path / "models"
    folder.mkdir()
    for number, each in enumerate(known):
        (folder / f"{number}.onnx").write_bytes(each.model().SerializeToString())
        np.savez(folder / f"{number}.npz", **each.feeds())
    lines = [json.loads(line) for line in Jobs(tmp_path, openvino_python).program(PROGRAM, str(folder))]
    assert len(lines) == len(known)
    refused, otherwise = set(), {}
    for number, kind, op in lines:
        each = known[int(number)]
        if kind != "built":
            refused.add(each.name)
            assert kind in {Kind.UNSUPPORTED_OP, Kind.INVALID_MODEL}, (each.name, kind)
            assert op in {each.op, "util::SequenceMark"}
        elif each.op not in RANDOM:
            wanted = list(reference(Made(model=each.model(), inputs=[], outputs=[]), each.feeds()).values())
            with np.load(folder / f"{number}-answer.npz") as answer:
                off = _off(wanted, list(answer.values()))
            if off != 0:
                otherwise[each.name] = off
    page = {title: _names(title) for title in ("Not converted", "Converted, and other answers than ONNX Runtime's")}
    assert refused == page["Not converted"]
    assert set(otherwise) == page["Converted, and other answers than ONNX Runtime's"] == set(OTHERWISE)
    assert {name: off and round(off, 2) for name, off in otherwise.items()} == dict(OTHERWISE)


REPAIRS: Mapping[str, str] = {
    "Det": "det_to_arithmetic",
    **{f"Reduce{op} H, W": "decompose_reduction" for op in ("L1", "LogSum", "LogSumExp")},
    "Resize linear, antialias": "antialias_to_matmul",
}
"""Case to the rewrite that mends it, which repairs.toml and the skill name."""


def test_the_rewrites_that_the_skill_names_mend_what_they_are_named_for(tmp_path: Path, openvino_python: Path) -> None:
    known = [each for each in cases() if each.name in REPAIRS]
    folder = tmp_path / "models"
    folder.mkdir()
    for number, each in enumerate(known):
        model, changed = graphs.rewritten(_typed(each), REPAIRS[each.name])
        assert changed
        (folder / f"{number}.onnx").write_bytes(model.SerializeToString())
        np.savez(folder / f"{number}.npz", **each.feeds())
    lines = [json.loads(line) for line in Jobs(tmp_path, openvino_python).program(PROGRAM, str(folder))]
    assert [kind for _, kind, _ in lines] == ["built"] * len(REPAIRS)
    for number, each in enumerate(known):
        wanted = list(reference(Made(model=each.model(), inputs=[], outputs=[]), each.feeds()).values())
        with np.load(folder / f"{number}-answer.npz") as answer:
            assert _off(wanted, list(answer.values())) == 0, each.name
    named = (FOLDER / "openvino" / "SKILL.md").read_text(encoding="utf-8")
    assert [name for name in REPAIRS.values() if f"`{name}`" not in named] == []


def _typed(each: Case) -> onnx.ModelProto:
    """Return the model of a case with the types of its outputs, which rewrites ask for."""
    return onnx.shape_inference.infer_shapes(each.model())


def _off(wanted: list[np.ndarray], found: list[np.ndarray]) -> float | None:
    """Return the largest error above 1e-3, 0 where there is none, None where a shape differs."""
    if [each.shape for each in wanted] != [each.shape for each in found]:
        return None
    errors = [np.abs(a.astype(float) - b.astype(float)).max() for a, b in zip(wanted, found, strict=True) if a.size]
    worst = float(max(errors, default=0))
    return worst if worst > 1e-3 else 0


def _names(title: str) -> set[str]:
    text = section_of(load(), "openvino/references/operators.md", title).text.strip().split("\n\n")[0]
    return {each.strip() for each in " ".join(text.split()).rstrip(".").split(";")}
