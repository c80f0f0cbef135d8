"""What a runtime's repairs.toml says: which rewrite of the graph to try after which failure; and what came of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aipc import home
from aipc.errors import UsageError
from aipc.runtime import Runtime, all_runtimes
from aipc.tables import decode, one_line, read_table, show
from runtimes.contract import Failure, Json, Kind, Misused, Status, Step, Verdict, suggest

FILE = "repairs.toml"

HOPELESS = frozenset(
    {
        *(Kind.ADAPTER, Kind.DISK, Kind.INVALID_WEIGHTS, Kind.MISSING_PACKAGE, Kind.NO_DEVICE, Kind.OPTION),
        *(Kind.PREREQUISITE, Kind.TIMEOUT, Kind.UNTRUSTED_WEIGHTS),
    }
)
"""Failures that are not the graph's fault: no rewrite mends them."""

_REWRITE = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """What a repair is tried for.

    Attributes:
        step: the step that showed it.
        kind: what sort of failure; null where the judge disagrees.
        op: the operator type it speaks of, or "".
        node: the node's name, or "".
        message: the failure's own words, or the judge's reasons.
    """

    step: Step
    kind: Kind | None
    op: str = ""
    node: str = ""
    message: str = ""

    def is_same(self, other: Symptom) -> bool:
        """Return whether `other` is this again; its words may differ by a time or an address."""
        return (self.step, self.kind, self.op, self.node) == (other.step, other.kind, other.op, other.node)


def symptom_of(step: Step, failure: Failure) -> Symptom | None:
    """Return what a rewrite may mend of a failure; None where none can."""
    if failure.kind in HOPELESS:
        return None
    return Symptom(step=step, kind=failure.kind, op=failure.op, node=failure.node, message=failure.message)


@dataclass(frozen=True, kw_only=True)
class Always:
    """A rewrite that comes before the first conversion.

    Attributes:
        rewrite: its name.
        precisions: those it is for; () for all.
        options: told to the rewrite.
    """

    rewrite: str
    precisions: tuple[str, ...] = ()
    options: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_name(self.rewrite)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rewrite to try when something went wrong.

    Attributes:
        rewrite: its name.
        kinds: of the failure; () for any.
        ops: of the failure; () for any.
        message: a regular expression to be found in the failure's message; "" for any.
        verdict: `disagrees` where it is for wrong numbers instead of a failure.
        options: told to the rewrite.
    """

    rewrite: str
    kinds: tuple[Kind, ...] = ()
    ops: tuple[str, ...] = ()
    message: str = ""
    verdict: Verdict | None = None
    options: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_name(self.rewrite)
        if self.verdict not in {None, Verdict.DISAGREES}:
            raise Misused(f"verdict: {str(self.verdict)!r} is nothing to mend; write 'disagrees' or leave it out")
        if self.verdict is not None and (self.kinds or self.ops or self.message):
            raise Misused("verdict: beside kinds, ops or message; a line is for a failure or for wrong numbers")
        for kind in self.kinds:
            if kind in HOPELESS:
                raise Misused(f"kinds: no rewrite mends {kind.value!r}; leave it out")
        try:
            re.compile(self.message)
        except re.error as error:
            raise Misused(f"message: {self.message!r} is no regular expression: {error}; mend it") from error

    def fits(self, symptom: Symptom) -> bool:
        """Return whether this is to be tried for `symptom`."""
        if symptom.kind is None or self.verdict is not None:
            return symptom.kind is None and self.verdict is Verdict.DISAGREES
        return (
            (not self.kinds or symptom.kind in self.kinds)
            and (not self.ops or symptom.op in self.ops)
            and re.search(self.message, symptom.message) is not None
        )


@dataclass(frozen=True, kw_only=True)
class Repairs:
    """A repairs.toml.

    Attributes:
        always: rewrites that come before the first conversion, in order.
        repairs: rewrites to try when something went wrong, in order; each once per cell.
    """

    always: tuple[Always, ...] = ()
    repairs: tuple[Rule, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The rewrites that its lines try."""
        always, repairs = (line.rewrite for line in self.always), (line.rewrite for line in self.repairs)
        return frozenset((*always, *repairs))

    def without(self, withheld: Sequence[str]) -> Repairs:
        """Return it without the lines that try one of the rewrites `withheld`."""
        return Repairs(
            always=tuple(line for line in self.always if line.rewrite not in withheld),
            repairs=tuple(line for line in self.repairs if line.rewrite not in withheld),
        )


@dataclass(frozen=True, kw_only=True)
class Wish:
    """A rewrite that a person or an agent asks for; it comes behind those that always come first.

    Attributes:
        rewrite: its name.
        runtime: who does it; what another than the reference makes, the reference checks.
        options: told to the rewrite.
        code: Python that changes the graph, in place of a rewrite that is known; the reference checks what it makes.
    """

    rewrite: str
    runtime: Runtime
    options: Mapping[str, Json] = field(default_factory=dict)
    code: str = ""

    @property
    def quantizes(self) -> bool:
        """Whether it is only for a precision that is built with calibration data, and is given that data."""
        return self.rewrite in self.runtime.quantizers


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A rewrite that was done or tried for a cell.

    Attributes:
        rewrite: its name.
        symptom: what it was tried for; null for one that comes before the first conversion: always, or as asked for.
        asked: a person or an agent asked for it.
        options: told to the rewrite.
        status: how the rewrite itself ended.
        changed: the nodes (or values) that it replaced.
        problem: why the rewrite itself was not done, or "".
        helped: whether it is part of the best attempt: the cell came further with it, ended in another way, or answered
            better. One that did not help was taken back.
    """

    rewrite: str
    symptom: Symptom | None = None
    asked: bool = False
    options: Mapping[str, Json] = field(default_factory=dict)
    status: Status = Status.DONE
    changed: tuple[str, ...] = ()
    problem: str = ""
    helped: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether it is in the model that the result is of."""
        return bool(self.changed) and (self.helped or self.symptom is None)


def load(runtime: Runtime) -> Repairs:
    """Return what the repairs.toml of `runtime` says; nothing where it has none.

    Raises:
        UsageError: something in it does not fit.
    """
    path = home.runtimes_folder() / runtime.name / FILE
    if not path.exists():
        return Repairs()
    where = show(path)
    found = decode(Repairs, read_table(path), where)
    if found.always and not runtime.builds:
        raise UsageError(f"{where}: always: only for a runtime that builds; remove it")
    for number, line in enumerate(found.always):
        for name in line.precisions:
            if name not in runtime.precisions:
                key = f"always[{number}].precisions"
                raise UsageError(
                    one_line(f"{where}: {key}: {runtime.name} has no {name!r}{suggest(name, runtime.precisions)}")
                )
    return found


def wishes(names: Sequence[str]) -> tuple[Wish, ...]:
    """Return what a person asks for by `names`, in order.

    Raises:
        UsageError: there is no such rewrite.
    """
    if not names:
        return ()
    known = {name: each for each in all_runtimes() for name in each.rewrites}
    for name in names:
        if name not in known:
            raise UsageError(f"--rewrite: there is no {name!r}{suggest(name, known)}")
    return tuple(Wish(rewrite=name, runtime=known[name]) for name in names)


def _check_name(name: str) -> None:
    if not _REWRITE.fullmatch(name):
        raise Misused(f"rewrite: {name!r} is no name; use small letters, digits and _, a letter first")
