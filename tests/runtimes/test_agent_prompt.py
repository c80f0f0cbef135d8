"""What the agent's model is told, what it may decide, and what it may read; nothing here needs smolagents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from runtimes import contract
from runtimes.agent import prompt, skills
from runtimes.agent.actions import Action, Mode, Undecided, decide, of_mode, schema
from runtimes.agent.course import Course, Ended, Entry, clip
from runtimes.agent.skills import PAGE_CHARACTERS, Library, Page, Section, UnknownSection
from runtimes.contract import Misused
from tests.runtimes.agent_jobs import GENERAL, SKILL
from tests.runtimes.openvino_jobs import ROOT

SKILLS = ROOT.parent / "skills"
ACTIONS = of_mode(Mode.DRIVE, skills=True)
TEXT = st.one_of(st.text(max_size=60), st.integers(0, 4000).map("x\n".__mul__))
ENTRIES = st.builds(
    Entry,
    action=st.sampled_from([*ACTIONS, "", "unheard"]),
    arguments=st.dictionaries(st.sampled_from(["name", "code", "options"]), TEXT | st.just({"a": 1}), max_size=3),
    ok=st.booleans(),
    observation=TEXT,
)
PAGES = st.builds(Page, name=TEXT, number=st.just(1), count=st.integers(1, 3), text=TEXT)
LIBRARIES = st.lists(
    st.tuples(st.sampled_from(["toy", "aipc", "third"]), st.text("abc-", min_size=1, max_size=60)), max_size=60
).map(lambda names: Library(sections={f"{a}#{b}": Section(name=f"{a}#{b}", text="") for a, b in names}))


def library(folder: Path, text: str = SKILL) -> Library:
    for name, content in (("toy", text), ("aipc", GENERAL)):
        (folder / name / "references").mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(content, encoding="utf-8")
    (folder / "toy" / "references" / "more.md").write_text("# More\n\nof it\n", encoding="utf-8")
    return skills.load(folder, "toy")


def situation(mode: Mode, cell: str, trace: list[Entry], books: Library) -> tuple[prompt.Session, Course]:
    actions = of_mode(mode, skills=bool(books))
    course = Course(steps=20, seconds=60)
    for entry in trace:
        course.add(entry)
    return prompt.Session(mode=mode, cell=cell, actions=actions, library=books), course


@given(
    st.sampled_from(Mode),
    TEXT,
    st.lists(ENTRIES, max_size=30),
    st.builds(prompt.Pinned, failure=TEXT, page=PAGES),
    LIBRARIES,
)
def test_a_prompt_has_at_most_1500_tokens_of_four_characters(
    mode: Mode, cell: str, trace: list[Entry], pinned: prompt.Pinned, books: Library
) -> None:
    session, course = situation(mode, cell, trace, books)
    system, user = prompt.build(session, course, pinned)
    assert len(system) + len(user) <= 4 * 1500
    assert user.endswith("Decide the next action.")
    assert all(action.usage in system for action in session.actions.values())


def test_a_page_that_was_just_read_is_in_the_prompt_whole() -> None:
    page = Page(name="toy#x", number=1, count=1, text="y" * PAGE_CHARACTERS)
    books = Library(sections={f"toy#{n:040}": Section(name=f"toy#{n:040}", text="`Einsum`") for n in range(200)})
    trace = [Entry(action="convert", arguments={}, ok=False, observation="Einsum " * 300)] * 2
    trace.append(Entry(action="read_skill", arguments={"section": "toy#x"}, ok=True, observation=page.text))
    session, course = situation(Mode.DRIVE, "c" * 999, trace, books)
    assert page.text in prompt.build(session, course, prompt.Pinned(page=page))[1]


def test_the_pages_that_name_a_failed_operator_are_told(tmp_path: Path) -> None:
    text = (
        "# T\n\n## A\n\n`Einsum` goes.\n\n## B\n\nEinsum, not as a name, and `Elu`.\n\n## C\n\n"
        + "x\n" * 1000
        + "`Einsum`\n"
    )
    session, course = situation(Mode.REPAIR, "net/toy/fp16", [], library(tmp_path, text))
    failure = "Unsupported nodes: { name: /a, type: Einsum }"

    def told(failure: str, page: Page | None = None) -> str:
        return prompt.build(session, course, prompt.Pinned(failure=failure, page=page))[1]

    call = contract.dumps({"action": "read_skill", "section": "toy#a"})
    assert f"\nRead first what is known of it: {call}; then toy#c/2\nDecide" in told(failure)
    assert "Read first" in told(failure, session.library.read("toy#b"))
    assert "Read first" not in told(failure, session.library.read("toy#c/2"))
    assert "Read first" not in told("it is slow")


@pytest.mark.parametrize(
    ("runtime", "words", "rewrite"),
    [
        ("ortqnn", "does not take Einsum '/Einsum'", "einsum_to_matmul"),
        ("rknn", "node '/Celu' (Celu) has no kernel", "decompose_activation"),
        ("openvino", "node /ReduceL1 (ReduceL1)", "decompose_reduction"),
    ],
)
def test_a_page_that_is_told_names_the_rewrite(runtime: str, words: str, rewrite: str) -> None:
    books = skills.load(SKILLS, runtime)
    assert any(f"`{rewrite}`" in books.read(page).text for page in books.naming(words))


def test_a_prompt_is_short_where_everything_in_it_is_long() -> None:
    long = "z" * 3000
    books = Library(sections={f"toy#{n:040}": Section(name="", text="") for n in range(200)})
    trace = [Entry(action=name, arguments={"name": long}, ok=True, observation=long) for name in ("rewrite", "convert")]
    trace += [Entry(action="graph", arguments={"op": long}, ok=True, observation=long)] * 9
    session, course = situation(Mode.DRIVE, long, trace, books)
    page = Page(name="toy#x", number=1, count=1, text="y" * PAGE_CHARACTERS)
    system, user = prompt.build(session, course, prompt.Pinned(failure=long, page=page))
    assert 5500 < len(system) + len(user) <= 6000
    assert "11. graph(" in user


def test_the_rules_take_at_most_300_tokens_and_say_nothing_of_what_is_not_there() -> None:
    session, course = situation(Mode.REPAIR, "net/toy/fp16", [], Library(sections={}))
    system, user = prompt.build(session, course, prompt.Pinned(failure="it failed"))
    assert "skill" not in system + user
    assert len(system.partition("Actions")[0]) <= 1200
    assert "it failed" in user


def test_the_newest_actions_are_told_and_the_oldest_are_left_out() -> None:
    trace = [Entry(action="graph", arguments={"op": f"Op{n}"}, ok=True, observation="w" * 900) for n in range(60)]
    session, course = situation(Mode.REPAIR, "net/toy/fp16", trace, Library(sections={}))
    user = prompt.build(session, course, prompt.Pinned())[1]
    assert "60. graph(op=Op59) ok" in user
    assert "59. graph(op=Op58) ok" in user
    assert "\n1. " not in user


def test_an_undo_takes_the_last_edit_off_the_candidate() -> None:
    course = Course(steps=9, seconds=9)
    for action, name in (("rewrite", "a"), ("rewrite", "b"), ("undo", "")):
        course.add(Entry(action=action, arguments={"name": name} if name else {}, ok=True, observation=""))
    assert course.candidate == ["rewrite(name=a)"]


def test_the_first_reason_of_an_end_stays() -> None:
    course = Course(steps=1, seconds=9)
    course.end(Ended.SUBMITTED, "mine")
    course.add(Entry(action="x", arguments={}, ok=False, observation=""))
    course.check_bounds()
    assert (course.ended, course.summary) == (Ended.SUBMITTED, "mine")


@given(st.text(max_size=200), st.integers(0, 100))
def test_a_clipped_text_is_as_short_as_asked_and_begins_the_same(text: str, most: int) -> None:
    short = clip(text, most)
    assert len(short) <= most
    assert short == text if len(text) <= most else short[:1] == text[: min(1, most)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
DECISIONS = st.dictionaries(
    st.sampled_from(["action", "thought", "name", "options", "opset", "code", "arguments"]),
    JSON | st.sampled_from([*ACTIONS]),
).map(json.dumps)


@given(st.text() | DECISIONS | st.text().map(lambda text: f'{{"action": "{text}'))
def test_any_answer_is_a_decision_that_can_be_written_down_or_is_explained(text: str) -> None:
    try:
        decision = decide(text, ACTIONS)
    except Undecided as error:
        contract.dumps(error.arguments).encode()
    else:
        contract.dumps(decision.arguments).encode()
        taken = ACTIONS[decision.action].arguments
        assert set(decision.arguments) <= set(taken)
        assert {name for name, each in taken.items() if not each.optional} <= set(decision.arguments)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<think>{"x": 1}</think> {"action": "rewrite", "name": "a", "section": ""}', {"name": "a"}),
        ('{"action": "rewrite", "name": "a", "options": {}}', {"name": "a"}),
        ('{"action": "rewrite", "name": "a", "options": "{\\"axis\\": 1}"}', {"name": "a", "options": {"axis": 1}}),
        ('{"action": "rewrite", "arguments": {"name": "a"}}', {"name": "a"}),
        ('{"action": "export", "opset": "17"}', {"opset": 17}),
        ('{"action": "patch_source", "path": "a", "old": "b", "new": ""}', {"path": "a", "old": "b", "new": ""}),
        ('{"action": "patch_graph", "code": "a\nb"}', {"code": "a\nb"}),
    ],
)
def test_answers_of_small_models_are_understood(text: str, arguments: contract.Json) -> None:
    assert decide(text, ACTIONS).arguments == arguments


@pytest.mark.parametrize("number", ["NaN", "1e999", '"\\ud800"'])
def test_what_no_result_can_hold_does_not_come_through(number: str) -> None:
    try:
        decision = decide(f'{{"action": "rewrite", "name": "a", "options": {{"x": {number}}}}}', ACTIONS)
    except Undecided:
        return
    contract.dumps(decision.arguments).encode()


@given(st.sampled_from(list(ACTIONS.values())), st.booleans())
def test_what_the_schema_allows_can_be_carried_out(action: Action, whole: bool) -> None:
    values = {"string": "a", "integer": 17, "object": {"axis": 1}}
    given = {name: values[each.type] for name, each in action.arguments.items() if whole or not each.optional}
    decision = {"thought": "so", "action": action.name, **given}
    Draft202012Validator(schema(ACTIONS)).validate(decision)
    assert decide(json.dumps(decision), ACTIONS).arguments == given
    for name in given:
        lacking = {key: value for key, value in decision.items() if key != name}
        assert Draft202012Validator(schema(ACTIONS)).is_valid(lacking) == action.arguments[name].optional
    assert not Draft202012Validator(schema(ACTIONS)).is_valid({**decision, "more": "a"})


def test_sections_are_cut_at_headings_and_named_by_them(tmp_path: Path) -> None:
    books = library(tmp_path, f"{SKILL}\n## Layout\n\nagain\n\n```\n# no heading\n```\n\n## Empty\n")
    assert books.skills == {"toy": ("toy", "failures", "layout", "layout-2", "more"), "aipc": ("stages",)}
    assert books.read("toy#layout-2").text == "## Layout\n\nagain\n\n```\n# no heading\n```\n"


@pytest.mark.parametrize("asked", ["toy#failures", "failures", "Failures", " toy#Failures ", "toy#failures/1"])
def test_a_section_is_found_by_its_name_its_slug_or_its_heading(tmp_path: Path, asked: str) -> None:
    assert library(tmp_path).read(asked).name == "toy#failures"


def test_a_skill_alone_is_the_list_of_its_sections(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert library(tmp_path, SKILL.replace("# Toy", "# About it")).read("toy").text.splitlines()[1:] == [
        *("toy#about-it", "toy#failures", "toy#layout", "toy#more")
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("toy#failuers", "did you mean 'toy#failures'?"),
        ("toy#layout/2", "has 1 page(s), not a page 2"),
        ("qqq", "known are aipc#stages"),
        ("aipc#failures", "there is no section"),
    ],
)
def test_a_section_that_is_not_there_says_what_is(tmp_path: Path, asked: str, words: str) -> None:
    with pytest.raises(UnknownSection) as error:
        library(tmp_path).read(asked)
    assert words in str(error.value)


def test_a_runtime_without_a_skill_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misused, match=r"holds no toy/SKILL.md"):
        skills.load(tmp_path, "toy")


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")).map(lambda t: t * 40))
)
def test_the_pages_of_a_section_are_short_and_together_its_text(lines: list[str]) -> None:
    section = Section(name="toy#x", text="\n".join(lines))
    assert "".join(section.pages) == section.text
    assert all(0 < len(page) <= PAGE_CHARACTERS for page in section.pages)


@pytest.mark.parametrize("runtime", sorted(path.parent.name for path in SKILLS.glob("*/SKILL.md")))
def test_every_section_of_the_real_skills_can_be_read_page_by_page(runtime: str) -> None:
    books = skills.load(SKILLS, runtime)
    for name, section in books.sections.items():
        page, read = books.read(name), ""
        for number in range(1, page.count + 1):
            page = books.read(f"{name}/{number}")
            assert len(page.text) <= PAGE_CHARACTERS
            read += page.text
        assert read == section.text
        assert name.partition("#")[0] in {runtime, "aipc"}
    assert books.read(runtime).text.count("\n") > 1
