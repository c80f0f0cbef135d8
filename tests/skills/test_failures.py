"""What the skills say of failures: words, kind and rewrite, against the adapters and repairs.toml."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from aipc import repairs, runtime
from aipc.repairs import Repairs
from runtimes.contract import Kind, Verdict
from runtimes.reference import rewrites
from tests.skills import words
from tests.skills.mutations import Mutation, Rule, mutated
from tests.skills.skill import RUNTIMES, Files, Row, codes, load, mains, of, rows, skill_of

KNOWN = frozenset(rewrites.known())


def loaded(skill: str) -> Repairs:
    return repairs.load(runtime.find("reference" if skill == "aipc" else skill))


def named(text: str) -> list[str]:
    """Return the rewrites that a text names."""
    return [code for code in codes(text) if code in KNOWN]


def quoted_words_are_read_as_the_skill_says(files: Files) -> Iterable[str]:
    for row in rows(files, "words", "kind"):
        said = row.codes("kind")
        for text in words.quoted(row.cell("words")):
            with tempfile.TemporaryDirectory() as folder:
                failure = words.read(skill_of(row.where), text, Path(folder))
            if said != [failure.kind.value]:
                yield f"{row.where}: {text!r} is {failure.kind.value}, not {said}"


def repairs_of_words_are_done_as_the_skill_says(files: Files) -> Iterable[str]:
    for row in rows(files, "words", "kind", "repair"):
        cell, skill = row.cell("repair"), skill_of(row.where)
        if not named(cell):
            continue
        found = loaded(skill)
        for name in named(cell):
            if "always" in cell:
                good = name in {line.rewrite for line in found.always}
            else:
                good = ("automatic" in cell or skill == "aipc") and _tried(found, name, row)
            if not good:
                yield f"{row.where}: {name} is not what repairs.toml does for {row.cell('words')}"


def _tried(found: Repairs, name: str, row: Row) -> bool:
    kind, line = Kind(row.codes("kind")[0]), " ".join(row.cells)
    return any(
        rule.rewrite == name
        and rule.verdict is None
        and (not rule.kinds or kind in rule.kinds)
        and (not rule.ops or any(op in line for op in rule.ops))
        and any(re.search(rule.message, text) for text in words.quoted(row.cell("words")))
        for rule in found.repairs
    )


def operators_and_rewrites_are_those_of_repairs_toml(files: Files) -> Iterable[str]:
    for skill in set(mains(files)) - {"aipc"}:
        table = list(rows(of(files, skill), "operator", "cause", "rewrite"))
        said = {(op, name) for row in table for op in row.codes("operator") for name in row.codes("rewrite")}
        found = loaded(skill)
        done = {
            (op, rule.rewrite)
            for rule in found.repairs
            if Kind.UNSUPPORTED_OP in rule.kinds or not rule.kinds
            for op in rule.ops
        }
        always = {line.rewrite for line in found.always}
        loose = {rule.rewrite for rule in found.repairs if Kind.UNSUPPORTED_OP in rule.kinds and not rule.ops}
        yield from (f"{skill}: {op} by {name} is not said" for op, name in sorted(done - said))
        wrong = {(op, name) for op, name in said - done if name not in always | loose}
        yield from (f"{skill}: {op} is not mended by {name}" for op, name in sorted(wrong))
        single = [cell for row in table for cell in row.codes("operator")]
        twice = {op for op in single if single.count(op) > len([1 for each, _ in done if each == op]) > 0}
        yield from (f"{skill}: {op} stands in several rows" for op in sorted(twice))


def wrong_numbers_are_mended_as_repairs_toml_does(files: Files) -> Iterable[str]:
    for skill in set(mains(files)) - {"aipc"}:
        said = {name for row in rows(of(files, skill), "pattern", "rewrite") for name in row.codes("rewrite")}
        done = {rule.rewrite for rule in loaded(skill).repairs if rule.verdict is Verdict.DISAGREES}
        yield from (f"{skill}: {name} is said, or done, alone" for name in sorted(said ^ done))


def rewrites_exist_and_stand_in_one_place(files: Files) -> Iterable[str]:
    """A rewrite that mends an operator stands in one row of the table of failures, and nowhere else in the skill.

    Whoever takes that line out takes the knowledge out.
    """
    for skill in RUNTIMES:
        mine = of(files, skill)
        for row in rows(mine, "operator", "cause", "rewrite"):
            for name in row.codes("rewrite"):
                if name not in KNOWN:
                    yield f"{row.where}: there is no rewrite {name}"
        for row in [
            *rows(mine, "words", "repair"),
            *rows(mine, "pattern", "rewrite"),
            *rows(mine, "how wrong", "repair"),
        ]:
            for code in row.codes("repair" if "repair" in row.columns else "rewrite"):
                if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", code) and code not in KNOWN:
                    yield f"{row.where}: there is no rewrite {code}"
        for name in ("einsum_to_matmul", "drop_layout"):
            lines = [line for text in mine.values() for line in text.splitlines() if name in line]
            if len(lines) > 1:
                yield f"{skill}: {name} stands on {len(lines)} lines"
    yield from (
        f"aipc/{name}: names {n}"
        for name, text in of(files, "aipc").items()
        for n in ("einsum_to_matmul", "drop_layout")
        if n in text
    )


def what_aipc_says_itself_stands_in_its_source(files: Files) -> Iterable[str]:
    from tests.skills.skill import ROOT

    for row in rows(files, "message", "kind", "what to do"):
        folder = ROOT / "runtimes" / skill_of(row.where)
        sources = [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
        (text,), (kind,) = row.codes("message"), row.codes("kind")
        at = [(source, source.index(text)) for source in sources if text in source]
        near = any(f"Kind.{kind.upper()}" in "\n".join(_around(source, place)) for source, place in at)
        if not near:
            yield f"{row.where}: nothing says {text!r} with {kind}"


def _around(source: str, place: int) -> list[str]:
    lines, number = source.splitlines(), source[:place].count("\n")
    return lines[max(0, number - 2) : number + 10]


MUTATIONS = (
    Mutation(
        quoted_words_are_read_as_the_skill_says,
        "rknn",
        "| `Unsupport onnx opset 20, need <= 19!` |",
        "| `Unsupported opset` |",
    ),
    Mutation(
        quoted_words_are_read_as_the_skill_says,
        "ortqnn",
        "| `toolchain` | a node is not taken",
        "| `memory` | a node is not taken",
    ),
    Mutation(
        quoted_words_are_read_as_the_skill_says,
        "tensorrt",
        "inputs, but no optimization profile",
        "inputs, but no profile",
    ),
    Mutation(
        quoted_words_are_read_as_the_skill_says, "openvino", "`No conversion rule found for", "`No rule found for"
    ),
    Mutation(quoted_words_are_read_as_the_skill_says, "qairt", "No translation registered", "No translation"),
    Mutation(quoted_words_are_read_as_the_skill_says, "aipc", "gate order: ", "gate ordered: "),
    Mutation(
        repairs_of_words_are_done_as_the_skill_says, "rknn", "| `drop_layout`, always |", "| `drop_layout`, automatic |"
    ),
    Mutation(repairs_of_words_are_done_as_the_skill_says, "aipc", "| `sort_nodes` |", "| `unique_names` |"),
    Mutation(
        operators_and_rewrites_are_those_of_repairs_toml, "ortqnn", "| `einsum_to_matmul` |", "| `det_to_arithmetic` |"
    ),
    Mutation(operators_and_rewrites_are_those_of_repairs_toml, "rknn", "| `Atan` |", "| `Tanh` |"),
    Mutation(operators_and_rewrites_are_those_of_repairs_toml, "openvino", "| `Det` |", "| `MaxUnpool` |"),
    Mutation(wrong_numbers_are_mended_as_repairs_toml_does, "ortqnn", "`guard_silu`", "`plain_gemm`"),
    Mutation(wrong_numbers_are_mended_as_repairs_toml_does, "openvino", "`antialias_to_matmul`", "`resize_to_matmul`"),
    Mutation(rewrites_exist_and_stand_in_one_place, "tensorrt", "`dft_to_matmul`", "`dft_to_conv`"),
    Mutation(
        rewrites_exist_and_stand_in_one_place, "ortqnn", "## When to use it", "`einsum_to_matmul`\n\n## When to use it"
    ),
    Mutation(rewrites_exist_and_stand_in_one_place, "aipc", "## When to use it", "`drop_layout`\n\n## When to use it"),
    Mutation(what_aipc_says_itself_stands_in_its_source, "openvino", "stored none of the", "stored some of the"),
)
RULES = tuple(dict.fromkeys(each.rule for each in MUTATIONS))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_skills_obey(rule: Rule) -> None:
    assert list(rule(load())) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_lie_is_seen(mutation: Mutation) -> None:
    assert list(mutation.rule(mutated(load(), mutation)))


@pytest.mark.parametrize(
    ("skill", "op", "name"), [("ortqnn", "Einsum", "einsum_to_matmul"), ("rknn", "LSTM", "drop_layout")]
)
def test_the_row_of_a_repair_is_all_that_a_skill_knows_of_it(skill: str, op: str, name: str) -> None:
    files = of(load(), skill)
    lines = [line for line in files[f"{skill}/SKILL.md"].splitlines() if name in line]
    assert len(lines) == 1
    assert op in lines[0]
    assert not any(name in text.replace(lines[0], "") for text in files.values())
