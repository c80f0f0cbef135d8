"""What the skills say of versions, targets, verdicts, operators and numbers, against what is measured or run."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest

from aipc import errors
from aipc.deployment import STAGES
from aipc.environment import Environment
from aipc.repairs import HOPELESS
from runtimes.contract import Kind, Step, Verdict
from runtimes.kit.socs import SOCS
from runtimes.reference import judge
from tests.runtimes import tensorrt_ops
from tests.skills.mutations import Mutation, Rule, mutated
from tests.skills.skill import (
    ROOT,
    RUNTIMES,
    VENDOR,
    Files,
    codes,
    load,
    of,
    rows,
    section_of,
    sections,
    skill_of,
)

PACKAGES = {
    **{name: (name, name) for name in ("openvino", "ortqnn")},
    "nncf": ("openvino", "nncf"),
    "onnxruntime": ("ortqnn", "onnxruntime"),
    "onnxruntime-qnn": ("ortqnn", "onnxruntime-qnn"),
    "rknn-toolkit2": ("rknn", "rknn-toolkit2"),
    "TensorRT for RTX": ("tensorrt", "tensorrt-rtx-cu13-libs"),
}
"""How a skill calls a package: the environment that has it, and its name there."""
_NUMBER = re.compile(r"(?<![\w.#×])(\d+(?:[.,]\d+)*)(?:\s?(dB|GiB|MiB|MB|GB|MB|%|s\b))?")


def toml(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def doc(name: str) -> str:
    return (ROOT / "docs" / "runtimes" / f"{name}.md").read_text(encoding="utf-8")


def versions_are_locked(files: Files) -> Iterable[str]:
    names = "|".join(sorted(map(re.escape, PACKAGES), key=len, reverse=True))
    for path, text in files.items():
        for name, version in re.findall(rf"\b({names}) (\d+(?:\.\d+)+)", text):
            environment, package = PACKAGES[name]
            locked = {pin.name: pin.version for pin in Environment.load(environment).pins()}
            if locked.get(package) != version:
                yield f"{path}: {name} {version}, but the lock has {locked.get(package)}"
    for skill in set(RUNTIMES):
        if not re.search(rf"\b({names}) \d", files[f"{skill}/SKILL.md"]):
            yield f"{skill}: names no version"


def targets_and_precisions_are_those_of_runtime_toml(files: Files) -> Iterable[str]:
    for skill in RUNTIMES:
        told, said = (
            toml(f"runtimes/{skill}/runtime.toml"),
            section_of(files, f"{skill}/SKILL.md", "Targets and precisions").text,
        )
        lacking = [name for name in told["targets"] if name not in codes(said)]
        lacking += [name for name in told["precisions"] if not re.search(rf"\b{name}\b", said)]
        yield from (f"{skill}: {name} is not said" for name in lacking)
        chips = {
            name
            for text in of(files, skill).values()
            for name in codes(text)
            if re.fullmatch(r"(sm|rk|rv|qc|sc)[\da-z]+", name)
        }
        yield from (f"{skill}: {name} is no target" for name in sorted(chips - set(told["targets"])))
        for kind in ("target", "precision"):
            if f"`{told[f'default_{kind}']}` (default)" not in said and kind == "target":
                yield f"{skill}: the default {kind} is not said"


def tolerances_are_in_force(files: Files) -> Iterable[str]:
    asked = {f"`{name}`": each for name, each in toml("matrix.toml")["precisions"].items()}
    for skill in RUNTIMES:
        for name, each in toml(f"runtimes/{skill}/runtime.toml").get("tolerances", {}).items():
            asked[f"`{name}` with {skill}"] = each
    said = {
        row.cell("precision"): {
            "cosine": float(row.cell("cosine at least")),
            "snr_db": float(row.cell("SNR at least").split()[0]),
        }
        for row in rows(files, "precision", "cosine at least", "SNR at least")
    }
    if said != asked:
        yield f"said are {said}, in force {asked}"


def words_of_aipc_are_its_own(files: Files) -> Iterable[str]:
    mine, path = of(files, "aipc"), "aipc/SKILL.md"
    tables: dict[str, tuple[set[str], set[str]]] = {
        "verdicts": (
            {each for row in rows(mine, "verdict", "it means") for each in row.codes("verdict")},
            set(map(str, Verdict)),
        ),
        "kinds": (
            {each for row in rows(mine, "kind", "what to do") for each in row.codes("kind")},
            set(map(str, Kind)),
        ),
        "gates": (set(codes(section_of(files, path, "Gates that fail").text)), set(judge.GATES)),
        "hopeless": (
            set(codes(section_of(files, path, "Kinds of failure").text.partition("No rewrite mends")[2])),
            {kind.value for kind in HOPELESS},
        ),
    }
    for name, (said, there) in tables.items():
        lacking = {*(each for each in there if each not in said), *(each for each in said if each not in there)}
        if name == "gates":
            lacking -= {"local", "equal"} & said
        yield from (f"{name}: {each!r} is said, or there, alone" for each in sorted(lacking))


def stages_hold_their_steps(files: Files) -> Iterable[str]:
    for row in rows(of(files, "aipc"), "stage", "steps"):
        for step in row.codes("steps"):
            if STAGES.get(Step(step) if step in set(Step) else Step.AGENT) != row.cell("stage"):
                yield f"{step} is no step of {row.cell('stage')}"


def report_keys_exist(files: Files) -> Iterable[str]:
    schema = json.loads((ROOT / "orchestrator/aipc/reports/report.schema.json").read_text(encoding="utf-8"))
    everywhere = {key for each in schema["$defs"].values() for key in each["properties"]} | set(schema["properties"])
    for row in rows(files, "key", "tells"):
        yield from (f"{row.where}: {key}" for key in row.codes("key") if key not in schema["properties"])
        inner = [key for code in row.codes("tells") for key in code.split(".")]
        yield from (f"{row.where}: {key}" for key in inner if key not in everywhere)
    number = schema["properties"]["report_schema"]["const"]
    if f"`report_schema` {number}." not in files["aipc/references/report.md"]:
        yield f"report_schema is {number}"


def exit_codes_are_in_force(files: Files) -> Iterable[str]:
    there = {
        each.exit_code
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.AipcError)
    }
    from aipc.cli import INTERRUPTED

    said = {int(row.cell("code")) for row in rows(of(files, "aipc"), "code", "means")}
    if said != {0, INTERRUPTED, *there}:
        yield f"said are {sorted(said)}"


# The operators.
def listed(text: str) -> set[str]:
    return {each.strip() for each in " ".join(text.split()).rstrip(".").split(";") if each.strip()}


def rknn_operators_run_where_they_were_measured(files: Files) -> Iterable[str]:
    table = doc("rknn").partition("| operator | result |")[2].partition("|---|---|---|\n")[2]
    measured = {
        line.split("|")[1].strip(): line.split("|")[2].strip() for line in table.splitlines() if line.startswith("| ")
    }
    titles = {
        "On the NPU: A to H": "NPU",
        "On the NPU: I to Z": "NPU",
        "On the board's CPU": "CPU",
        "No kernel: refused by aipc": "no kernel",
        "Refused by the toolkit": "refused",
        "The toolkit dies": "dies",
    }
    said = {
        name: result
        for title, result in titles.items()
        for name in listed(section_of(files, "rknn/references/operators.md", title).text)
    }
    differ = {name for name in said.keys() | measured.keys() if said.get(name) != measured.get(name)}
    yield from (f"{name}: said {said.get(name)}, measured {measured.get(name)}" for name in sorted(differ))
    unmended = section_of(files, "rknn/SKILL.md", "Operators without a kernel: graphs, normalisation, signals").text
    for name in codes(unmended.partition("No rewrite:")[2]):
        if measured.get(name) not in {"no kernel", "refused", "dies"}:
            yield f"{name} is {measured.get(name)}"
    on_cpu = section_of(files, "rknn/SKILL.md", "Nodes on the board's CPU").text
    for name in codes(on_cpu):
        if name[0].isupper() and "CPU" not in {result for case, result in measured.items() if case.split()[0] == name}:
            yield f"{name} does not run on the CPU"


def ortqnn_operators_are_right_where_the_docs_say_so(files: Files) -> Iterable[str]:
    text = doc("ortqnn").partition("**Taken, and right**")[2].partition("\n\n")[2]
    names = r"\b[A-Z][A-Za-z]*[A-Z]?[a-z]*[A-Za-z0-9]*\b"
    there = set(re.findall(names, text)) - {"D"}
    page = files["ortqnn/references/operators.md"].partition("## Element by element")[2]
    said = {name for line in page.splitlines() if not line.startswith("#") for name in re.findall(names, line)} - {
        "D",
        "Of",
    }
    yield from (f"{name} is said, or measured, alone" for name in sorted(said ^ there))
    unmended = set(codes(section_of(files, "ortqnn/SKILL.md", "Operators that no rewrite mends").text))
    row = next(line for line in doc("ortqnn").splitlines() if line.endswith("| none |") and "BitShift" in line)
    there = set(re.findall(names, row.split("|")[1]))
    yield from (f"{name}: mended or not?" for name in sorted((there ^ unmended) - {"NonZero", "NonMaxSuppression"}))


def tensorrt_refuses_what_is_measured(files: Files) -> Iterable[str]:
    refused = {each.op for each in tensorrt_ops.cases() if each.name in tensorrt_ops.REFUSED} - {
        "Relu",
        "ConstantOfShape",
    }
    mended = {op for row in rows(of(files, "tensorrt"), "operator", "rewrite") for op in row.codes("operator")}
    unmended = set(codes(section_of(files, "tensorrt/SKILL.md", "Operators that no rewrite mends").text))
    yield from (f"{op} is refused, and not said" for op in sorted(refused - mended - unmended))
    # No case measures it; repairs.toml has it beside QLinearConv.
    yield from (f"{op} is not refused" for op in sorted((mended | unmended) - refused - {"QLinearMatMul"}))


def qairt_takes_what_the_docs_say(files: Files) -> Iterable[str]:
    text = doc("qairt").partition("What is not taken")[2].partition("QCM6490 takes")[0]
    refused, _, taken = (part.replace("\n", " ") for part in text.partition("Taken:"))
    said = section_of(files, "qairt/SKILL.md", "Operators that are not taken").text.partition("No rewrite:")[2]
    not_taken, _, right = said.partition("Taken:")
    yield from (f"{op} is taken, or not said" for op in sorted(set(codes(right)) ^ set(codes(taken))))
    mended = {op for row in rows(of(files, "qairt"), "operator", "rewrite") for op in row.codes("operator")}
    for op in sorted(set(codes(refused)) - {"Mish"}):
        if op not in mended | set(codes(not_taken)):
            yield f"{op} is refused, and not said"


def chips_are_the_kits(files: Files) -> Iterable[str]:
    table = rows(of(files, "qairt"), "target", "SoC number", "Hexagon", "VTCM in MB")
    said = {row.codes("target")[0]: (int(row.cells[1]), row.cells[2], int(row.cells[3])) for row in table}
    there = {name: (soc.number, soc.arch, soc.vtcm_mb) for name, soc in SOCS.items()}
    yield from (
        f"{name}: {said.get(name)}, {there.get(name)}"
        for name in said.keys() | there.keys()
        if said.get(name) != there.get(name)
    )


# The numbers.
@cache
def sources(skill: str) -> frozenset[tuple[str, str]]:
    """Return the numbers, each with its unit, of what is measured, run or locked."""
    folders = [
        "docs",
        f"runtimes/{skill}",
        "runtimes/kit",
        f"images/{skill}",
        "orchestrator/aipc" if skill == "aipc" else "docs",
    ]
    paths = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".md", ".py", ".toml", ".in", ".json"}
    ]
    paths += [
        ROOT / "matrix.toml",
        ROOT / "README.md",
        ROOT / "runtimes/contract.py",
        ROOT / "runtimes/rknn/repairs.toml",
    ]
    paths += [path for path in (ROOT / "tests/runtimes").glob("*.py") if skill in path.name]
    paths += [ROOT / "tests/skills/test_openvino_operators.py"] if skill == "openvino" else []
    paths += [ROOT / "runtimes/qairt/repairs.toml"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())
    found = set(_NUMBER.findall(text))
    return frozenset(found | {(number, "") for number, _ in found})


def numbers_have_a_source(files: Files) -> Iterable[str]:
    for each in sections(files):
        # A list's own numbers, and the stand-ins for nodes and sizes in quoted words, are nothing that was measured.
        text = re.sub(r"^\d+\. ", "", each.prose, flags=re.MULTILINE)
        if VENDOR in text or each.path.startswith("qairt/references"):
            continue
        text = "\n".join(line for line in text.splitlines() if not _quotes_words(line))
        for number, unit in _NUMBER.findall(text):
            if (number.rstrip(".,"), unit) not in sources(skill_of(each.path)):
                yield f"{each.name}: {number} {unit} has no source"


def _quotes_words(line: str) -> bool:
    return line.startswith("| `") and line.count("|") >= 5


def what_was_not_measured_is_said_so(files: Files) -> Iterable[str]:
    """A page of the SDK is the vendor's, says so, or names what was measured."""
    for path in of(files, "qairt"):
        if path.startswith("qairt/references") and VENDOR not in files[path] and "```qairt" in files[path]:
            yield f"{path}: whose word is it?"
    for each in sections(of(files, "qairt")):
        if "```qairt" in each.text and VENDOR not in each.text:
            yield f"{each.name}: whose word is it?"


def links_stay_within_one_level(files: Files) -> Iterable[str]:
    for path, text in files.items():
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            found = f"{path.rpartition('/')[0]}/{target}"
            if found not in files:
                yield f"{path}: {target}"
        for script in re.findall(r"`(scripts/[\w.]+)", text):
            if not (ROOT / "skills" / skill_of(path) / script).is_file():
                yield f"{path}: {script}"
    for path in files:
        if path.count("/") > 2:
            yield f"{path}: lies too deep"


def pages_are_reachable(files: Files) -> Iterator[str]:
    for path in files:
        if "/references/" in path and f"({path.partition('/')[2]})" not in files[f"{skill_of(path)}/SKILL.md"]:
            yield f"{path}: SKILL.md does not name it"


MUTATIONS = (
    Mutation(versions_are_locked, "ortqnn", "onnxruntime-qnn 2.7.0", "onnxruntime-qnn 2.6.0"),
    Mutation(versions_are_locked, "rknn", "rknn-toolkit2 2.5.0", "rknn-toolkit2 2.3.2"),
    Mutation(targets_and_precisions_are_those_of_runtime_toml, "rknn", "`rv1126b`", "`rv1127`"),
    Mutation(targets_and_precisions_are_those_of_runtime_toml, "tensorrt", "`sm121`,", ""),
    Mutation(tolerances_are_in_force, "aipc", "| 0.999 | 30 dB |", "| 0.99 | 30 dB |"),
    Mutation(words_of_aipc_are_its_own, "aipc", "| `vacuous` |", "| `empty` |"),
    Mutation(words_of_aipc_are_its_own, "aipc", "| `placed` |", "| `where` |"),
    Mutation(words_of_aipc_are_its_own, "aipc", "`prerequisite`, `timeout`", "`timeout`"),
    Mutation(stages_hold_their_steps, "aipc", "| verify | `run`, `judge` |", "| verify | `run`, `export` |"),
    Mutation(report_keys_exist, "aipc", "| `placement` |", "| `places` |"),
    Mutation(report_keys_exist, "aipc/references/report.md", "`report_schema` 2", "`report_schema` 1"),
    Mutation(exit_codes_are_in_force, "aipc", "| 130 |", "| 131 |"),
    Mutation(rknn_operators_run_where_they_were_measured, "rknn/references/operators.md", "; LSTM;", "; Sin;"),
    Mutation(rknn_operators_run_where_they_were_measured, "rknn", "`TopK`, `ArgMax`", "`TopK`, `Relu`"),
    Mutation(ortqnn_operators_are_right_where_the_docs_say_so, "ortqnn/references/operators.md", "Mish, ", ""),
    Mutation(ortqnn_operators_are_right_where_the_docs_say_so, "ortqnn", "`Hardmax`, ", ""),
    Mutation(tensorrt_refuses_what_is_measured, "tensorrt", "`MaxRoiPool`", "`MaxPoolRoi`"),
    Mutation(qairt_takes_what_the_docs_say, "qairt", "`TopK`", "`NonZero`"),
    Mutation(chips_are_the_kits, "qairt", "| 57 | v75 | 8 |", "| 57 | v75 | 4 |"),
    Mutation(numbers_have_a_source, "rknn", "6.5 GiB", "5.5 GiB"),
    Mutation(numbers_have_a_source, "openvino", "23.0 dB", "33.0 dB"),
    Mutation(numbers_have_a_source, "aipc", "at most 12 attempts", "at most 1234 attempts"),
    Mutation(what_was_not_measured_is_said_so, "qairt/references/inference.md", VENDOR, "Measured here"),
    Mutation(links_stay_within_one_level, "aipc", "references/report.md)", "references/reports.md)"),
    Mutation(links_stay_within_one_level, "rknn", "`scripts/placement.py", "`scripts/placements.py"),
    Mutation(pages_are_reachable, "aipc", "(references/mending.md)", ""),
)
RULES = tuple(dict.fromkeys(each.rule for each in MUTATIONS))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_skills_obey(rule: Rule) -> None:
    assert list(rule(load())) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_lie_is_seen(mutation: Mutation) -> None:
    files = mutated(load(), mutation)
    if mutation.rule is pages_are_reachable:
        files = {**files, mutation.path: files[mutation.path].replace(mutation.old, mutation.new)}
    assert list(mutation.rule(files))
