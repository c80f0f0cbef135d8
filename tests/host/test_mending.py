"""The repair loop: which rewrite is tried when, what is taken back, and what is reported in the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aipc import mending
from aipc.engines import Identity
from aipc.jobs import Session, StepRun
from aipc.mending import Stopped, Walk
from aipc.repairs import Repair, Rule, Symptom
from runtimes.contract import Failure, Kind, Result, Status, Step, Verdict

ROOT = Path(__file__).parent.parent.parent
EINSUM = Symptom(step=Step.CONVERT, kind=Kind.UNSUPPORTED_OP, op="Einsum", node="/a", message="no Einsum in 2.5")
WRONG = Symptom(step=Step.JUDGE, kind=None, message="cosine is 0.9")


def ran(step: Step, result: Result) -> StepRun:
    identity = Identity(engine="venv", environment="alpha", digest="", interpreter="", base_image="")
    return StepRun(
        step=step,
        runtime="alpha",
        key="",
        cached=False,
        result=result,
        identity=identity,
        uncaged=(),
        entry=None,
        log=b"",
    )


def failed(op: str = "", kind: Kind = Kind.UNSUPPORTED_OP, step: Step = Step.CONVERT) -> StepRun:
    return ran(step, Result(status=Status.FAILED, failure=Failure(kind=kind, message=f"no {op}", op=op)))


def judged(verdict: Verdict, snr_db: float | None = None, *, failed: int = 0) -> StepRun:
    """How the judge ended: one measure, and so many gates that failed."""
    facts = {
        "verdict": verdict.value,
        "reasons": ["so"],
        "gates": [{"name": f"gate-{number}", "passed": False} for number in range(failed)],
        "measures": [{"snr_db": snr_db}],
    }
    return ran(Step.JUDGE, Result(status=Status.DONE, facts=facts))


class Cell:
    """A cell whose attempts end as told, the last one again and again; `changes` are the rewrites that do something.

    What is told is a list, or what an attempt with a model ends in: a model is the rewrites that are in it.
    """

    def __init__(
        self, ends: list[StepRun] | Callable[[frozenset[str]], StepRun], changes: str = "", broken: str = ""
    ) -> None:
        self.walk = Walk(cast("Session", None))
        self.attempts = 0
        self.tried: list[str] = []
        self.model: frozenset[str] = frozenset()
        self._ends, self._changes, self._broken = ends, changes.split(), broken.split()

    def attempt(self) -> StepRun:
        ends = self._ends
        end = ends[min(self.attempts, len(ends) - 1)] if isinstance(ends, list) else ends(self.model)
        self.attempts += 1
        self.walk.runs.append(end)
        self.walk.path.append(end)
        if not end:
            raise Stopped
        return end

    def rewrite(self, rule: Rule, symptom: Symptom) -> StepRun:
        self.tried.append(rule.rewrite)
        changed = ("/node",) if rule.rewrite in self._changes else ()
        self.model |= {rule.rewrite} if changed else set()
        status = Status.FAILED if rule.rewrite in self._broken else Status.DONE
        self.walk.repairs.append(Repair(rewrite=rule.rewrite, symptom=symptom, status=status, changed=changed))
        return GOOD

    def keep(self) -> Callable[[], None]:
        model = self.model

        def back() -> None:
            self.model = model

        return back

    def mend(self, *rules: Rule) -> StepRun:
        return mending.mend(self.walk, self, rules)

    @property
    def helped(self) -> list[bool]:
        return [each.helped for each in self.walk.repairs]


def lines(names: str, **fields: Any) -> list[Rule]:
    return [Rule(rewrite=name, **fields) for name in names.split()]


GOOD = judged(Verdict.AGREES)
BAD = judged(Verdict.DISAGREES)


def test_nothing_is_rewritten_where_nothing_is_wrong() -> None:
    cell = Cell([GOOD])
    assert cell.mend(*lines("a b")) is GOOD
    assert (cell.attempts, cell.tried) == (1, [])


def test_lines_are_tried_in_the_order_of_the_file() -> None:
    cell = Cell([failed("A"), failed("B"), GOOD], changes="b c a")
    assert cell.mend(*lines("b c a")) is GOOD
    assert cell.tried == ["b", "c"]
    assert cell.helped == [True, True]


def test_each_line_is_used_once_though_the_same_failure_comes_back() -> None:
    cell = Cell([failed("A")], changes="a b")
    assert not cell.mend(*lines("a b"))
    assert (cell.attempts, cell.tried) == (4, ["a", "b", *("a", "b")])  # alone, and then together
    assert cell.helped == [False] * 4
    assert cell.model == frozenset()


def test_a_rewrite_that_changes_nothing_costs_no_conversion() -> None:
    cell = Cell([failed("A"), GOOD], changes="c")
    assert cell.mend(*lines("a b c")) is GOOD
    assert (cell.attempts, cell.tried) == (2, ["a", "b", "c"])
    assert cell.helped == [False, False, True]


def test_a_cell_ends_where_nothing_changes_anything() -> None:
    cell = Cell([failed("A")])
    assert not cell.mend(*lines("a b"))
    assert (cell.attempts, cell.tried) == (1, ["a", "b"])


def test_a_rewrite_that_fails_gives_its_turn_to_the_next_line() -> None:
    cell = Cell([failed("A"), GOOD], changes="b", broken="a")
    assert cell.mend(*lines("a b")) is GOOD
    assert [each.status for each in cell.walk.repairs] == [Status.FAILED, Status.DONE]


def test_a_cell_is_tried_again_no_more_often_than_the_bound() -> None:
    names = " ".join(f"r{number}" for number in range(mending.MOST + 5))
    cell = Cell([failed("A")], changes=names)
    assert not cell.mend(*lines(names))
    assert (cell.attempts, len(cell.tried)) == (mending.MOST + 1, mending.MOST)


def test_wrong_numbers_are_mended_by_the_lines_for_them_alone() -> None:
    cell = Cell([BAD, GOOD], changes="a b")
    assert cell.mend(*lines("a"), *lines("b", verdict=Verdict.DISAGREES)) is GOOD
    assert cell.tried == ["b"]


@pytest.mark.parametrize("end", [judged(Verdict.VACUOUS), failed(kind=Kind.TIMEOUT), failed(kind=Kind.DISK)])
def test_what_no_rewrite_mends_starts_none(end: StepRun) -> None:
    cell = Cell([end], changes="a b")
    cell.mend(*lines("a"), *lines("b", verdict=Verdict.DISAGREES))
    assert cell.tried == []


@pytest.mark.parametrize(
    ("first", "second", "helped"),
    [
        (failed("A"), failed("B"), True),
        (failed("A"), failed("A"), False),
        (failed("A"), failed("A", step=Step.RUN), True),
        (failed("A", step=Step.RUN), failed("B"), False),
        (failed("A"), BAD, True),
        (BAD, BAD, False),
        (BAD, failed("A"), False),
        (BAD, GOOD, True),
        (judged(Verdict.DISAGREES, 8.0), judged(Verdict.DISAGREES, 12.0), True),
        (judged(Verdict.DISAGREES, 8.0), judged(Verdict.DISAGREES, 8.05), False),
        (judged(Verdict.DISAGREES, 12.0), judged(Verdict.DISAGREES, 8.0), False),
        (judged(Verdict.DISAGREES, None), judged(Verdict.DISAGREES, -3.0), True),
        (judged(Verdict.DISAGREES, 8.0, failed=3), judged(Verdict.DISAGREES, 8.0, failed=2), True),
        (judged(Verdict.DISAGREES, 8.0, failed=2), judged(Verdict.DISAGREES, 9.0, failed=3), False),
        (failed("A"), failed(kind=Kind.TIMEOUT), False),
        (failed("A"), failed(kind=Kind.NO_DEVICE, step=Step.RUN), True),
    ],
)
def test_a_rewrite_helped_where_the_cell_came_further(first: StepRun, second: StepRun, helped: bool) -> None:
    cell = Cell([first, second], changes="a b")
    last = cell.mend(Rule(rewrite="a"), Rule(rewrite="b", verdict=Verdict.DISAGREES))
    assert cell.helped[0] is helped
    assert last is (second if helped else first)
    assert cell.walk.path[-1] is last


WRONG_LINES = {"verdict": Verdict.DISAGREES}


def test_what_did_not_help_is_taken_back_before_the_next_line_is_tried() -> None:
    models = []

    def ends(model: frozenset[str]) -> StepRun:
        models.append(set(model))
        return GOOD if model == {"c"} else BAD if not model else failed("A") if "a" in model else BAD

    cell = Cell(ends, changes="a b c")
    assert cell.mend(*lines("a b c", **WRONG_LINES)) is GOOD
    assert models == [set(), {"a"}, {"b"}, {"c"}]
    assert cell.helped == [False, False, True]
    assert cell.walk.path == [BAD, GOOD]
    assert len(cell.walk.runs) == 4


def test_a_later_failure_does_not_lose_the_verdict_of_before() -> None:
    cell = Cell(lambda model: failed("A") if model else BAD, changes="a")
    assert cell.mend(*lines("a", **WRONG_LINES)) is BAD
    assert (cell.model, cell.walk.path) == (frozenset(), [BAD])


def test_a_failure_that_a_rewrite_brought_is_mended_before_it_is_taken_back() -> None:
    def ends(model: frozenset[str]) -> StepRun:
        return GOOD if model == {"silu", "cast"} else failed("Cast") if "silu" in model else BAD

    cell = Cell(ends, changes="silu cast")
    assert cell.mend(*lines("silu", **WRONG_LINES), *lines("cast", ops=("Cast",))) is GOOD
    assert cell.helped == [True, True]


def test_rewrites_that_each_make_the_answers_better_all_stay() -> None:
    cell = Cell(lambda model: GOOD if len(model) == 3 else judged(Verdict.DISAGREES, 8.0 + len(model)), "a b c")
    assert cell.mend(*lines("a b c", **WRONG_LINES)) is GOOD
    assert cell.attempts == 4


def test_labels_have_no_snr_and_do_not_hide_that_the_numbers_beside_them_are_better() -> None:
    def ends(model: frozenset[str]) -> StepRun:
        facts = judged(Verdict.DISAGREES, failed=1).result.facts
        numbers = [{"snr_db": 8.0 + 4.0 * len(model), "equal": None}, {"snr_db": None, "equal": 0.9}]
        return ran(Step.JUDGE, Result(status=Status.DONE, facts={**facts, "measures": numbers}))

    cell = Cell(ends, changes="a")
    cell.mend(*lines("a", **WRONG_LINES))
    assert cell.helped == [True]


def test_what_was_taken_back_is_tried_again_once_something_else_has_helped() -> None:
    def ends(model: frozenset[str]) -> StepRun:
        return GOOD if model == {"a", "b"} else judged(Verdict.DISAGREES, 20.0 if "b" in model else 8.0)

    cell = Cell(ends, changes="a b")
    assert cell.mend(*lines("a b", **WRONG_LINES)) is GOOD
    assert (cell.tried, cell.helped) == (["a", "b", "a"], [False, True, True])


def test_what_helps_only_together_is_tried_together() -> None:
    cell = Cell(lambda model: GOOD if {"a", "c"} <= model else judged(Verdict.DISAGREES, 8.0), changes="a b c")
    assert cell.mend(*lines("a b c", **WRONG_LINES)) is GOOD
    assert cell.attempts == 5
    assert cell.helped == [*([False] * 3), *([True] * 3)]


def test_a_rewrite_may_be_what_the_next_one_needs() -> None:
    def ends(model: frozenset[str]) -> StepRun:
        return GOOD if model == {"sizes", "gather"} else failed("GatherND")

    cell = Cell(ends, changes="sizes gather")
    assert cell.mend(*lines("sizes gather", ops=("GatherND",))) is GOOD
    assert (cell.attempts, cell.helped) == (3, [True, True])


def test_a_way_that_leads_nowhere_is_left_for_another() -> None:
    def ends(model: frozenset[str]) -> StepRun:
        return GOOD if model == {"b"} else failed("A") if not model else failed("B")

    cell = Cell(ends, changes="a b")
    assert cell.mend(*lines("a b", ops=("A",))) is GOOD
    assert cell.helped == [False, True]


def test_a_cell_does_not_go_in_a_circle() -> None:
    cell = Cell(lambda model: failed("AB"[len(model) % 2]), changes="a b c d")
    assert not cell.mend(*lines("a c", ops=("A",)), *lines("b d", ops=("B",)))
    assert cell.attempts < mending.MOST


@given(st.lists(st.integers(0, 3), min_size=16, max_size=16), st.permutations("abcd"))
def test_what_is_reported_is_never_worse_than_any_attempt(ranks: list[int], order: list[str]) -> None:
    """Whatever each set of four rewrites leads to, the model in the end is one that was tried, and the best of them."""
    ladder = [failed("A"), failed("B", step=Step.RUN), judged(Verdict.DISAGREES, 5.0), judged(Verdict.DISAGREES, 9.0)]
    seen = {}

    def ends(model: frozenset[str]) -> StepRun:
        seen[model] = ranks[sum(1 << "abcd".index(name) for name in model)]
        return ladder[seen[model]]

    cell = Cell(ends, changes="a b c d")
    last = cell.mend(*(Rule(rewrite=name) for name in order), *lines(" ".join(order), **WRONG_LINES))
    assert ladder.index(last) == seen[cell.model] == max(seen.values())
    kept = {each.rewrite for each in cell.walk.repairs if each.is_kept}
    assert kept == cell.model
