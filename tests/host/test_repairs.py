"""What a repairs.toml may say, which line fits which failure, and in which order the loop tries them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aipc import home, repairs, runtime
from aipc.errors import UsageError
from aipc.repairs import Rule, Symptom
from runtimes.contract import Failure, Kind, Step, Verdict

ROOT = Path(__file__).parent.parent.parent
EINSUM = Symptom(step=Step.CONVERT, kind=Kind.UNSUPPORTED_OP, op="Einsum", node="/a", message="no Einsum in 2.5")
WRONG = Symptom(step=Step.JUDGE, kind=None, message="cosine is 0.9")


def write(checkout: Path, text: str, name: str = "alpha") -> runtime.Runtime:
    (checkout / "runtimes" / name / "repairs.toml").write_text(text)
    return runtime.find(name)


def test_a_runtime_without_the_file_has_no_repairs(checkout: Path) -> None:
    assert checkout.exists()
    assert repairs.load(runtime.find("alpha")) == repairs.Repairs()


def test_the_file_is_read_with_all_it_may_say(checkout: Path) -> None:
    alpha = write(
        checkout,
        """
        [[always]]
        rewrite = "fp16"
        precisions = ["fp16"]
        options = { keep = ["Resize"] }

        [[repairs]]
        rewrite = "einsum_to_matmul"
        kinds = ["unsupported_op"]
        ops = ["Einsum"]
        message = "2[.]5"

        [[repairs]]
        rewrite = "guard_silu"
        verdict = "disagrees"
        """,
    )
    found = repairs.load(alpha)
    assert [(each.rewrite, each.precisions, each.options) for each in found.always] == [
        ("fp16", ("fp16",), {"keep": ["Resize"]})
    ]
    einsum, silu = found.repairs
    assert (einsum.kinds, einsum.ops, einsum.message) == ((Kind.UNSUPPORTED_OP,), ("Einsum",), "2[.]5")
    assert silu.verdict is Verdict.DISAGREES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[repair]]\nrewrite = "x"', "unknown key 'repair'; did you mean 'repairs'?"),
        ('[[repairs]]\nrewrite = "x"\nop = ["Einsum"]', "repairs[0]: unknown key 'op'; did you mean 'ops'?"),
        ('[[repairs]]\nkinds = ["crash"]', "repairs[0]: the key 'rewrite' is missing; add it"),
        ('[[repairs]]\nrewrite = "x"\nkinds = ["unsupported"]', "did you mean 'unsupported_op'?"),
        ('[[repairs]]\nrewrite = "x"\nkinds = ["timeout"]', "kinds: no rewrite mends 'timeout'; leave it out"),
        ('[[repairs]]\nrewrite = "x"\nkinds = ["disk"]', "kinds: no rewrite mends 'disk'; leave it out"),
        ('[[repairs]]\nrewrite = "x"\nmessage = "("', "message: '(' is no regular expression"),
        ('[[repairs]]\nrewrite = "x"\nverdict = "vacuous"', "verdict: 'vacuous' is nothing to mend"),
        ('[[repairs]]\nrewrite = "x"\nverdict = "disagrees"\nops = ["Mul"]', "verdict: beside kinds, ops or message"),
        ('[[repairs]]\nrewrite = "Ein sum"', "rewrite: 'Ein sum' is no name"),
        ('[[always]]\nrewrite = "x"\nprecisions = ["fp61"]', "always[0].precisions: alpha has no 'fp61'; did you mean"),
        ("[[repairs", "not TOML"),
    ],
)
def test_what_does_not_fit_is_one_line_that_names_file_and_key(checkout: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        repairs.load(write(checkout, text))
    assert "runtimes/alpha/repairs.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_builds_nothing_has_nothing_that_always_comes_first(checkout: Path) -> None:
    with pytest.raises(UsageError, match="always: only for a runtime that builds"):
        repairs.load(write(checkout, '[[always]]\nrewrite = "x"', "reference"))


def test_every_rewrite_that_a_real_runtime_names_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "HOME", ROOT)
    source = "".join(path.read_text() for path in (ROOT / "runtimes" / "reference" / "rewrites").glob("*.py"))
    named: dict[str, str] = {}
    for each in runtime.all_runtimes():
        book = repairs.load(each)
        for rewrite in (*(line.rewrite for line in book.always), *(line.rewrite for line in book.repairs)):
            named.setdefault(rewrite, each.name)
    missing = {rewrite: name for rewrite, name in named.items() if f'name="{rewrite}"' not in source}
    assert missing == {}


@pytest.mark.parametrize(
    ("rule", "symptom", "fits"),
    [
        (Rule(rewrite="x"), EINSUM, True),
        (Rule(rewrite="x", kinds=(Kind.UNSUPPORTED_OP,)), EINSUM, True),
        (Rule(rewrite="x", kinds=(Kind.CRASH,)), EINSUM, False),
        (Rule(rewrite="x", ops=("Einsum",)), EINSUM, True),
        (Rule(rewrite="x", ops=("Mul",)), EINSUM, False),
        (Rule(rewrite="x", message="2[.]5"), EINSUM, True),
        (Rule(rewrite="x", message="2[.]6"), EINSUM, False),
        (Rule(rewrite="x", kinds=(Kind.UNSUPPORTED_OP,), ops=("Mul",)), EINSUM, False),
        (Rule(rewrite="x", verdict=Verdict.DISAGREES), EINSUM, False),
        (Rule(rewrite="x", verdict=Verdict.DISAGREES), WRONG, True),
        (Rule(rewrite="x"), WRONG, False),
    ],
)
def test_a_line_fits_what_it_says_and_nothing_else(rule: Rule, symptom: Symptom, fits: bool) -> None:
    assert rule.fits(symptom) is fits


@pytest.mark.parametrize("kind", sorted(repairs.HOPELESS))
def test_a_failure_that_is_not_the_graphs_is_no_case_for_a_rewrite(kind: Kind) -> None:
    assert repairs.symptom_of(Step.RUN, Failure(kind=kind, message="no")) is None


# The loop. A cell here is a list of how its attempts end; a rewrite is a name with how it ends.
