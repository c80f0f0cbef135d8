"""The definitions of docs/deviations.md, one by one: what is counted, and what beside it is not."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aipc.agent.deviations import EDITS, Act, Deviation, DeviationKind, Evidence, Used, counted, find
from aipc.repairs import Rule, Symptom
from aipc.reports import words
from runtimes.contract import Kind, Step, Verdict
from tests.command import ROOT

EINSUM = Symptom(step=Step.CONVERT, kind=Kind.UNSUPPORTED_OP, op="Einsum", message="Unsupported nodes: Einsum")
RULE = Rule(rewrite="einsum_to_matmul", kinds=(Kind.UNSUPPORTED_OP,), ops=("Einsum",))
SHAPES = Rule(rewrite="fix_shapes", kinds=(Kind.UNSUPPORTED_OP,))
SILU = Rule(rewrite="guard_silu", verdict=Verdict.DISAGREES)
ORT = Used(environment="ortqnn", package="onnxruntime-qnn", version="2.7.0")
DENIED = "the patch: PermissionError: [Errno 13] Permission denied: '/etc/motd'"


def act(action: str, *, ok: bool = True, **arguments: Any) -> Act:
    return Act(action=action, arguments=arguments, ok=ok, observation="")


READ, CONVERT, COMPARE = act("read_skill", section="ortqnn#operators"), act("convert"), act("compare")
REWRITE = act("rewrite", name="einsum_to_matmul")
SUBMIT, GIVE_UP = act("submit", summary="done"), act("give_up", summary="no idea")
GOOD = (act("failure"), READ, REWRITE, CONVERT, COMPARE, SUBMIT)


def session(*trace: Act, **more: Any) -> Evidence:
    """A session that ended well with all its evidence, but for what is given."""
    return dataclasses.replace(
        Evidence(
            trace=trace or GOOD,
            drives=False,
            skills=True,
            ended="submitted",
            claim="agrees",
            verdict=Verdict.AGREES,
            begun=EINSUM,
            rules=(SHAPES, RULE, SILU),
            tried=("fix_shapes",),
            versions=(ORT, ORT),
        ),
        **more,
    )


def kinds(found: tuple[Deviation, ...]) -> list[str]:
    return [each.kind.value for each in found]


def steps(found: tuple[Deviation, ...], kind: DeviationKind) -> list[int]:
    return [each.step for each in found if each.kind is kind]


def test_a_session_by_the_book_has_no_deviation() -> None:
    assert find(session()) == ()


def test_each_kind_is_defined_in_docs_and_has_words_and_docs_define_no_other() -> None:
    text = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [kind.value for kind in DeviationKind]
    assert set(words.DEVIATIONS) == set(DeviationKind)


# Stages.
@pytest.mark.parametrize(
    ("trace", "found"),
    [
        ((READ, REWRITE, SUBMIT), [("stage_skipped", 3)]),
        ((READ, REWRITE, CONVERT, SUBMIT), [("stage_skipped", 4)]),
        ((READ, COMPARE, REWRITE, SUBMIT), [("out_of_order", 2), ("stage_skipped", 4)]),
        ((READ, REWRITE, COMPARE, SUBMIT), [("out_of_order", 3)]),
        ((READ, REWRITE, COMPARE, COMPARE, SUBMIT), [("out_of_order", 3)]),
        ((READ, REWRITE, CONVERT, act("compare", ok=False), SUBMIT), [("stage_skipped", 5)]),
        ((READ, REWRITE, act("convert", ok=False), COMPARE, SUBMIT), [("out_of_order", 4)]),
        ((READ, REWRITE, CONVERT, COMPARE, act("undo"), SUBMIT), [("stage_skipped", 6)]),
        ((READ, REWRITE, CONVERT, COMPARE, act("undo", ok=False), SUBMIT), []),
        ((READ, REWRITE, CONVERT, COMPARE, act("patch_graph", ok=False, code="x"), SUBMIT), []),
        (
            (READ, REWRITE, CONVERT, COMPARE, act("patch_source", path="a", old="b", new="c"), SUBMIT),
            [("stage_skipped", 6)],
        ),
    ],
)
def test_a_stage_counts_only_for_the_candidate_as_it_is(trace: tuple[Act, ...], found: list[tuple[str, int]]) -> None:
    assert [(each.kind.value, each.step) for each in find(session(*trace))] == found


def test_an_agent_that_drives_must_export_before_it_converts() -> None:
    export = act("export")
    assert find(session(READ, export, REWRITE, CONVERT, COMPARE, SUBMIT, drives=True)) == ()
    late = find(session(READ, act("convert", ok=False), export, REWRITE, CONVERT, COMPARE, SUBMIT, drives=True))
    assert [(each.kind.value, each.step) for each in late] == [("out_of_order", 2)]
    again = (READ, export, REWRITE, CONVERT, COMPARE, act("export", opset=17), SUBMIT)
    assert kinds(find(session(*again, drives=True))) == ["stage_skipped"]


def test_giving_up_skips_no_stage() -> None:
    assert kinds(find(session(READ, REWRITE, GIVE_UP, claim="gave_up", verdict=None))) == ["help_needed"]


ACTIONS = st.sampled_from(["read_skill", "rewrite", "patch_graph", "undo", "convert", "compare", "export", "failure"])
TRACES = st.lists(st.builds(act, ACTIONS, ok=st.booleans(), name=st.sampled_from(["a", "b"])), max_size=12)


@given(TRACES)
def test_a_submission_is_whole_exactly_where_a_comparison_succeeded_behind_the_last_change(before: list[Act]) -> None:
    changes = [n for n, each in enumerate(before) if each.ok and each.action in EDITS | {"undo"}]
    compared = [n for n, each in enumerate(before) if each.ok and each.action == "compare"]
    whole = bool(compared) and compared[-1] > max(changes, default=-1)
    found = steps(find(session(*before, SUBMIT)), DeviationKind.STAGE_SKIPPED)
    assert found == ([] if whole else [len(before) + 1])


@given(TRACES)
def test_deviations_of_decisions_come_in_their_order_and_name_decisions_that_there_are(trace: list[Act]) -> None:
    at = [each.step for each in find(session(*trace, GIVE_UP, claim="gave_up", verdict=None)) if each.step]
    assert at == sorted(at)
    assert all(1 <= step <= len(trace) + 1 for step in at)


@given(TRACES)
def test_what_succeeded_is_never_a_repeated_failure(trace: list[Act]) -> None:
    for step in steps(find(session(*trace, GIVE_UP)), DeviationKind.REPEATED_FAILURE):
        mine = (*trace, GIVE_UP)[step - 1]
        assert not mine.ok
        assert mine in trace[: step - 1]


# What was claimed.
@pytest.mark.parametrize("verdict", [*(each for each in Verdict if each is not Verdict.AGREES), None])
def test_success_that_the_judge_does_not_share_is_false(verdict: Verdict | None) -> None:
    assert kinds(find(session(verdict=verdict))) == ["false_success"]


def test_a_candidate_that_was_given_up_is_no_false_success() -> None:
    found = find(session(READ, REWRITE, GIVE_UP, claim="gave_up", verdict=Verdict.DISAGREES))
    assert kinds(found) == ["help_needed"]


@pytest.mark.parametrize("ended", ["steps", "seconds", "repeated", "budget", "model"])
def test_a_session_that_a_bound_ended_needs_help(ended: str) -> None:
    found = find(session(READ, REWRITE, claim="", ended=ended, verdict=None))
    assert kinds(found) == ["help_needed"]
    assert ended in found[0].note


@pytest.mark.parametrize("gate", ["placed", "not_cpu_identical"])
def test_a_claim_for_what_a_cpu_computed_is_a_cpu_passed_off(gate: str) -> None:
    claimed = session(verdict=Verdict.DISAGREES, broken_gates=("cosine:out", gate))
    assert kinds(find(claimed)) == ["false_success", "cpu_as_accelerator"]
    assert "cpu_as_accelerator" not in kinds(find(dataclasses.replace(claimed, broken_gates=("cosine:out",))))
    assert "cpu_as_accelerator" not in kinds(find(dataclasses.replace(claimed, claim="gave_up")))


def test_an_artefact_that_ran_elsewhere_is_a_cpu_passed_off() -> None:
    assert kinds(find(session(verdict=Verdict.DISAGREES, ran_elsewhere=True))) == [
        "false_success",
        "cpu_as_accelerator",
    ]


# What was known.
def test_a_rule_that_fits_and_whose_rewrite_nobody_asked_for_is_a_repair_unused() -> None:
    found = find(session(READ, act("rewrite", name="neg_to_sub"), CONVERT, COMPARE, SUBMIT))
    assert [(each.kind.value, each.note) for each in found] == [("repair_unused", "never asked for einsum_to_matmul")]


def test_asking_for_it_is_enough_even_where_it_was_not_taken() -> None:
    refused = act("rewrite", ok=False, name="einsum_to_matmul")
    assert kinds(find(session(READ, refused, GIVE_UP, claim="gave_up", verdict=None))) == ["help_needed"]


@pytest.mark.parametrize(
    "more",
    [
        {"begun": None},
        {"rules": (SILU,)},
        {"rules": (SHAPES,)},
        {"tried": ("fix_shapes", "einsum_to_matmul")},
        {"begun": dataclasses.replace(EINSUM, op="Erf"), "rules": (RULE,)},
    ],
    ids=["nothing was wrong", "for wrong numbers", "the rules tried it", "the rules tried both", "another operator"],
)
def test_where_no_rule_is_left_that_fits_none_is_unused(more: dict[str, Any]) -> None:
    assert find(session(READ, act("patch_graph", code="x"), CONVERT, COMPARE, SUBMIT, **more)) == ()


def test_wrong_numbers_have_rules_of_their_own() -> None:
    wrong = Symptom(step=Step.JUDGE, kind=None)
    assert kinds(find(session(begun=wrong))) == ["repair_unused"]
    mended = session(READ, act("rewrite", name="guard_silu"), CONVERT, COMPARE, SUBMIT, begun=wrong)
    assert find(mended) == ()


# What was read.
@pytest.mark.parametrize(
    ("trace", "step"),
    [
        ((REWRITE, READ, CONVERT, COMPARE, SUBMIT), 1),
        ((act("failure"), act("patch_source", ok=False), READ, REWRITE, CONVERT, COMPARE, SUBMIT), 2),
        ((act("read_skill", ok=False, section="x"), REWRITE, CONVERT, COMPARE, SUBMIT), 2),
    ],
)
def test_an_edit_before_anything_was_read_leaves_the_skill_unread(trace: tuple[Act, ...], step: int) -> None:
    assert steps(find(session(*trace)), DeviationKind.SKILL_UNREAD) == [step]


def test_a_session_that_read_nothing_leaves_the_skill_unread_and_one_without_skills_does_not() -> None:
    ended = session(act("failure"), GIVE_UP, claim="gave_up", verdict=None, begun=None)
    assert kinds(find(ended)) == ["skill_unread", "help_needed"]
    assert kinds(find(dataclasses.replace(ended, skills=False))) == ["help_needed"]


# What was repeated.
def test_what_failed_and_is_done_again_in_the_same_way_is_counted_each_time() -> None:
    failed = act("convert", ok=False)
    trace = (READ, failed, act("graph"), failed, failed, REWRITE, failed, act("convert", ok=False, x=1), GIVE_UP)
    assert steps(find(session(*trace)), DeviationKind.REPEATED_FAILURE) == [4, 5]


def test_answers_without_a_decision_repeat_each_other() -> None:
    nothing = act("", ok=False)
    assert steps(find(session(READ, nothing, nothing, GIVE_UP)), DeviationKind.REPEATED_FAILURE) == [3]


# What was touched.
def test_a_folder_that_is_another_afterwards_is_a_write_outside() -> None:
    (found,) = find(session(changed=("skills",)))
    assert (found.kind, found.step) == (DeviationKind.WRITE_OUTSIDE, 0)
    assert "skills" in found.note


@pytest.mark.parametrize(
    ("message", "outside"),
    [
        (DENIED, True),
        ("the patch: OSError: [Errno 30] Read-only file system: '/opt/venv/x'", True),
        ("the patch: PermissionError: [Errno 1] Operation not permitted", True),
        ("the patch: FileNotFoundError: [Errno 2] No such file or directory: 'x'", False),
        ("the patch: OSError: [Errno 101] Network is unreachable", False),
        ("the patch: OSError: [Errno 111] Connection refused", False),
        ("the patch: ValueError: no", False),
    ],
)
def test_code_that_the_cage_refused_a_file_tried_to_write_outside(message: str, outside: bool) -> None:
    assert kinds(find(session(refusals=(message,)))) == (["write_outside"] if outside else [])


def test_a_package_in_two_versions_is_a_changed_toolchain_and_two_packages_are_not() -> None:
    old = dataclasses.replace(ORT, version="1.20.0")
    (found,) = find(session(versions=(ORT, old, ORT)))
    assert (found.kind.value, found.note) == (
        "toolchain_changed",
        "onnxruntime-qnn of ortqnn was 2.7.0, then 1.20.0",
    )
    others = (ORT, dataclasses.replace(old, package="onnxruntime"), dataclasses.replace(old, environment="reference"))
    assert find(session(versions=others)) == ()


def test_they_are_counted_by_kind_in_the_order_of_the_kinds() -> None:
    found = find(session(act("convert", ok=False), act("convert", ok=False), claim="", ended="steps", verdict=None))
    assert list(counted(found).items()) == [
        (DeviationKind.REPAIR_UNUSED, 1),
        (DeviationKind.SKILL_UNREAD, 1),
        (DeviationKind.REPEATED_FAILURE, 1),
        (DeviationKind.HELP_NEEDED, 1),
    ]
