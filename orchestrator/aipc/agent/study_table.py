"""What came of a study's trials: counted, with how sure one can be of it, as a table in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aipc.agent.deviations import Deviation, DeviationKind, counted
from runtimes.contract import Verdict

Z = 1.959963984540054
"""The normal distribution has 95 % between minus and plus this."""
ALL = "all"
"""The row of all failures together."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One finished trial. It is true when the agent succeeded: the judge agrees with what it submitted.

    Attributes:
        model: the subject's name in the study's file.
        failure: the failure's name.
        skills: whether they could be read.
        number: from 1.
        cell: what was deployed.
        verdict: of the cell in the end.
        taken: that verdict is of the agent's candidate.
        language_model: the name that its server knows it by.
        model_sha256: of its weights, "" where nobody knows.
        synthetic: a person wrote its answers.
        ended: why the session was over.
        claim: what the agent claimed.
        steps: its decisions.
        tokens: of prompts and answers.
        estimated: the tokens are estimated.
        seconds: wall time of the session.
        deviations: where it left its way.
        sampling_seed: of the model's sampling.
        judge_seed: of the judge's inputs, 0 where nothing was judged.
        commit: that aipc ran from, "" for none.
        made: when, in ISO 8601.
    """

    model: str
    failure: str
    skills: bool
    number: int
    cell: str
    verdict: Verdict
    taken: bool
    language_model: str
    model_sha256: str
    synthetic: bool
    ended: str
    claim: str
    steps: int
    tokens: int
    estimated: bool
    seconds: float
    deviations: tuple[Deviation, ...]
    sampling_seed: int
    judge_seed: int
    commit: str
    made: str

    def __bool__(self) -> bool:
        return bool(self.verdict) and self.taken


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a table says of a study as a whole.

    Attributes:
        name: of its file, without the ending.
        engine: where the jobs ran.
        trials: how many were asked for.
        bounds: of a session, in words.
        withheld: failure to the rewrites that no rule may try.
    """

    name: str
    engine: str
    trials: int
    bounds: str
    withheld: Mapping[str, tuple[str, ...]]


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the two-sided 95 % interval of Wilson's score (1927) for a share; (0, 1) where nothing was tried."""
    if not trials:
        return 0.0, 1.0
    share, square = successes / trials, Z * Z
    centre = share + square / (2 * trials)
    half = Z * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    scale = 1 + square / trials
    # At the ends the two terms cancel but for rounding.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == trials else (centre + half) / scale
    return low, high


def share(successes: int, trials: int) -> str:
    """Return a share with its interval in words: `3 of 4 (30–95 %)`."""
    low, high = wilson(successes, trials)
    return f"{successes} of {trials} ({100 * low:.0f}–{100 * high:.0f} %)"


def line(trial: Trial) -> str:
    """Return one trial on a line, as it is told when it has ended."""
    kinds = ", ".join(f"{kind} {times}" for kind, times in counted(trial.deviations).items())
    return (
        f"{'✓' if trial else '✗'} {trial.verdict.value}; it ended: {trial.ended}; {trial.steps} steps, "
        f"{'about ' if trial.estimated else ''}{trial.tokens} tokens, {trial.seconds:.0f} s; "
        f"deviations: {kinds or 'none'}"
    )


def markdown(head: Head, trials: Sequence[Trial]) -> str:
    """Return the tables of a study."""
    blocks = [_title(head, trials)]
    if trials:
        blocks += [_outcomes(trials), _deviations(trials), _notes(head, trials)]
    return "\n\n".join(blocks) + "\n"


def _title(head: Head, trials: Sequence[Trial]) -> str:
    missing = head.trials - len(trials)
    commits = ", ".join(f"`{each}`" for each in dict.fromkeys(trial.commit for trial in trials) if each)
    days = sorted({trial.made[:10] for trial in trials})
    made = f" from commit {commits or 'unknown'} on {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
    left = f" **{missing} of {head.trials} trials are not made yet.**" if missing else f" {head.trials} trials."
    return f"# Study: {head.name}\n\nMade by `aipc study`{made}, on the {head.engine} engine.{left} {head.bounds}"


def _outcomes(trials: Sequence[Trial]) -> str:
    heads = ("model", "skills", "failure", "success (95 %)", "steps", "tokens", "seconds")
    rows = []
    for model, skills, of in _groups(trials):
        failures = list(dict.fromkeys(trial.failure for trial in of))
        for failure in (*failures, *([ALL] if len(failures) > 1 else [])):
            chosen = [trial for trial in of if failure in {trial.failure, ALL}]
            about = "about " if any(trial.estimated for trial in chosen) else ""
            rows.append(
                (
                    model,
                    _said(skills),
                    f"**{ALL}**" if failure == ALL else failure,
                    share(sum(map(bool, chosen)), len(chosen)),
                    _spread(chosen, lambda trial: trial.steps),
                    f"{about}{_spread(chosen, lambda trial: trial.tokens)}",
                    _spread(chosen, lambda trial: trial.seconds),
                )
            )
    return _table(heads, rows)


def _deviations(trials: Sequence[Trial]) -> str:
    groups = list(_groups(trials))
    heads = ("deviation", *(f"{model}, {_said(skills)}" for model, skills, _ in groups))
    rows = []
    for kind in DeviationKind:
        row = [f"`{kind.value}`"]
        for _, _, of in groups:
            times = [counted(trial.deviations).get(kind, 0) for trial in of]
            more = f", {sum(times)} times" if sum(times) > sum(map(bool, times)) else ""
            row.append(f"{share(sum(map(bool, times)), len(of))}{more}")
        rows.append(tuple(row))
    text = "Trials that show each deviation at least once; docs/deviations.md defines them."
    return f"## Deviations\n\n{text}\n\n{_table(heads, rows)}"


def _notes(head: Head, trials: Sequence[Trial]) -> str:
    lines = [
        "Success: what the agent submitted was built anew, and the judge agrees on inputs drawn afterwards.",
        "Intervals: Wilson, two-sided, 95 %. Steps, tokens and seconds: the mean, and the least and the most;",
        "seconds are those of the session, in which jobs that an earlier trial had done as well came from the store.",
        "",
    ]
    cells = {trial.failure: trial.cell for trial in trials}
    for failure, names in head.withheld.items():
        cell = f" (`{cells[failure]}`)" if failure in cells else ""
        lines.append(f"- failure {failure}{cell}: no rule may try {', '.join(f'`{name}`' for name in names)}")
    for model in dict.fromkeys(trial.model for trial in trials):
        one = next(trial for trial in trials if trial.model == model)
        weights = f", sha256 of its weights {one.model_sha256}" if one.model_sha256 else ""
        who = "answers that a person wrote, no language model" if one.synthetic else f"`{one.language_model}`{weights}"
        lines.append(f"- model {model}: {who}")
    return "\n".join(lines)


def _groups(trials: Sequence[Trial]) -> Iterator[tuple[str, bool, list[Trial]]]:
    """Give each model and arm that was tried, with its trials."""
    for model in dict.fromkeys(trial.model for trial in trials):
        for skills in (True, False):
            of = [trial for trial in trials if (trial.model, trial.skills) == (model, skills)]
            if of:
                yield model, skills, of


def _said(skills: bool) -> str:
    return "with" if skills else "without"


def _spread(trials: Sequence[Trial], of: Callable[[Trial], float]) -> str:
    """Return the mean, and the least and the most where they differ."""
    values = [of(trial) for trial in trials]
    mean = f"{sum(values) / len(values):.0f}" if max(values) >= 10 else f"{sum(values) / len(values):.1f}"
    least, most = f"{min(values):.0f}", f"{max(values):.0f}"
    return mean if least == most else f"{mean} ({least}–{most})"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
