"""What is asked for: matrix.toml, or a model file of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from aipc import runtime
from aipc.agent import settings
from aipc.agent.settings import Settings
from aipc.errors import UsageError
from aipc.model import (
    MODEL_NAME,
    Content,
    Exporter,
    Group,
    Input,
    Model,
    Origin,
    OutputContent,
    Source,
    Tolerance,
    check_distinct,
)
from aipc.modelfile import model_from_file
from aipc.tables import decode, near, one_line, read_table, show
from runtimes.contract import Json, Misused, Verdict, encode, suggest

__all__ = [
    "DEFAULT_TOLERANCES",
    "Content",
    "Exporter",
    "Group",
    "Input",
    "Matrix",
    "Model",
    "Origin",
    "OutputContent",
    "Source",
    "Tolerance",
    "Wanted",
    "find_model",
    "load",
    "model_from_file",
]

DEFAULT_TOLERANCES: Mapping[str, Tolerance] = {
    "fp32": Tolerance(cosine=0.99999, snr_db=60.0),
    "fp16": Tolerance(cosine=0.999, snr_db=30.0),
    "int8": Tolerance(cosine=0.95, snr_db=20.0),
}
"""How close is close enough, where a matrix says nothing else; whatever a matrix loosens is said beside the verdict."""

_LARGEST_MAGNITUDE = 1e6


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a matrix asks of one runtime, for each of its models.

    Attributes:
        precisions: which ones; each makes a cell.
        targets: which ones; each makes a cell.
        others: the precisions that it has beside these; each makes a cell of a model that asks for it.
    """

    precisions: tuple[str, ...]
    targets: tuple[str, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All that is asked for.

    Attributes:
        models: by name.
        pictures: the photographs that picture inputs are made of.
        precisions: how close each must come, by name; the defaults are in it.
        runtimes: what is asked of each, by name.
        seed: of everything that is drawn at random.
        magnitudes: of the random samples: each is drawn from [low * magnitude, high * magnitude].
        shapes: pattern of cells to the input size that they are tried at, where the model's own is too large for them.
        expected: pattern of cells to the verdict that is right for them, where that is not `agrees`.
        agent: who is asked where the rules do not do, and within which bounds.
        withheld: rewrites that no rule may try, as a command or a study asks for; no file says it.
    """

    models: Mapping[str, Model]
    pictures: tuple[Source, ...]
    precisions: Mapping[str, Tolerance]
    runtimes: Mapping[str, Wanted]
    seed: int
    magnitudes: tuple[float, ...]
    shapes: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, Verdict] = field(default_factory=dict)
    agent: Settings = field(default_factory=Settings)
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _File:
    """A matrix.toml as it is written: tables that are read one by one, so that an error names its own."""

    models: Mapping[str, object] = field(default_factory=dict)
    pictures: tuple[Source, ...] = ()
    precisions: Mapping[str, object] = field(default_factory=dict)
    runtimes: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    magnitudes: tuple[float, ...] = (1.0, 0.1)
    shapes: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, Verdict] = field(default_factory=dict)
    agent: object = None

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise Misused(f"seed: {self.seed} is not from 0 to 2**32 - 1; give such a number")
        for magnitude in self.magnitudes:
            # NaN is refused as well: it compares with nothing.
            if not 0 < magnitude <= _LARGEST_MAGNITUDE:
                raise Misused(f"magnitudes: {magnitude} is not above 0; give numbers such as 1.0 and 0.1")
        # The random samples are named by six digits of these.
        if len({f"{magnitude:g}" for magnitude in self.magnitudes}) < max(2, len(self.magnitudes)):
            raise Misused(
                f"magnitudes: {list(self.magnitudes)}; give two or more, all different: a wrong scale hides in one"
            )
        check_distinct("pictures", [picture.name for picture in self.pictures])


@dataclass(frozen=True, kw_only=True)
class _WantedTable:
    precisions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_distinct("precisions", self.precisions)
        check_distinct("targets", self.targets)


def load(path: Path) -> Matrix:
    """Return the matrix in the TOML file at `path`.

    Paths in it are relative to its own folder.

    Raises:
        UsageError: the file cannot be read, or something in it does not fit: one line with the file and the key.
    """
    where = show(path)
    file = decode(_File, read_table(path), where)
    folder = path.absolute().parent
    known = {each.name: each for each in runtime.all_runtimes()} if file.runtimes or file.precisions else {}
    models = {name: _model(name, table, where, folder) for name, table in file.models.items()}
    matrix = Matrix(
        models=models,
        pictures=tuple(_placed(picture, folder) for picture in file.pictures),
        precisions=_tolerances(file.precisions, known, where),
        runtimes={name: _asked(name, table, known, where) for name, table in file.runtimes.items()},
        seed=file.seed,
        magnitudes=file.magnitudes,
        shapes=file.shapes,
        expected=file.expected,
        agent=settings.from_table(file.agent or {}, where),
    )
    _check_pictures(matrix, where)
    _check_precisions(matrix, where)
    _check_tolerated(matrix, known, where)
    return matrix


def tolerance(matrix: Matrix, runtime: runtime.Runtime, precision: str) -> Tolerance:
    """Return how close a precision must come: the matrix says so, or the runtime for one that only it has.

    Raises:
        UsageError: neither does.
    """
    found = matrix.precisions.get(precision) or runtime.tolerances.get(precision)
    if found is None:
        raise UsageError(
            f"precision {precision!r} of {runtime.name}: has no tolerance; add [precisions.{precision}] to the matrix"
        )
    return found


def find_model(matrix: Matrix, name: str) -> Model:
    """Return the model of `matrix` called `name`.

    Raises:
        UsageError: there is none.
    """
    if name not in matrix.models:
        raise UsageError(one_line(f"model {name!r}: not in the matrix{near(name, list(matrix.models))}"))
    return matrix.models[name]


def _key(table: str, name: str) -> str:
    return f"{table}.{name}" if MODEL_NAME.fullmatch(name) else f"{table}.{name!r}"


def _model(name: str, table: Json, where: str, folder: Path) -> Model:
    key = _key("models", name)
    if isinstance(table, Mapping):
        if "name" in table:
            raise UsageError(
                one_line(f"{where}: {key}.name: {table['name']!r}; remove it, the table's name is the name")
            )
        table = {**table, "name": name}
    model = decode(Model, table, where, key)
    if model.environment:
        runtime.check_environment(model.environment, f"{where}: {key}.environment")
    if model.folder:
        place = folder / Path(model.folder).expanduser()
        if not place.is_dir():
            raise UsageError(
                f"{where}: {key}.folder: {show(place)} is no folder; name the one that holds {model.function!r}"
            )
        model = replace(model, folder=str(place))
    return replace(model, weights=tuple(_placed(weight, folder) for weight in model.weights))


def _placed(source: Source, folder: Path) -> Source:
    return replace(source, path=str(folder / Path(source.path).expanduser())) if source.path else source


def _tolerances(tables: Mapping[str, Json], known: Mapping[str, runtime.Runtime], where: str) -> dict[str, Tolerance]:
    names = {*DEFAULT_TOLERANCES, *(precision for each in known.values() for precision in each.precisions)}
    tolerances = dict(DEFAULT_TOLERANCES)
    for name, table in tables.items():
        if name not in names:
            raise UsageError(one_line(f"{where}: precisions.{name}: no runtime has it{suggest(name, names)}"))
        usual = encode(DEFAULT_TOLERANCES[name]) if name in DEFAULT_TOLERANCES else {}
        merged = {**usual, **table} if isinstance(table, Mapping) else table
        tolerances[name] = decode(Tolerance, merged, where, f"precisions.{name}")
    return tolerances


def _asked(name: str, table: Json, known: Mapping[str, runtime.Runtime], where: str) -> Wanted:
    builders = [each.name for each in known.values() if each.builds]
    if name not in builders:
        raise UsageError(one_line(f"{where}: {_key('runtimes', name)}: no such runtime{suggest(name, builders)}"))
    asked = decode(_WantedTable, table, where, f"runtimes.{name}")
    has = known[name]
    for key, wanted, there in (
        ("precisions", asked.precisions, has.precisions),
        ("targets", asked.targets, tuple(has.targets)),
    ):
        for each in wanted:
            if each not in there:
                raise UsageError(one_line(f"{where}: runtimes.{name}.{key}: it has no {each!r}{suggest(each, there)}"))
    precisions = asked.precisions or (has.default_precision,)
    return Wanted(
        precisions=precisions,
        targets=asked.targets or (has.default_target,),
        others=tuple(each for each in has.precisions if each not in precisions),
    )


def _check_pictures(matrix: Matrix, where: str) -> None:
    for name, model in matrix.models.items():
        if not matrix.pictures and any(each.content is Content.PICTURE for each in model.inputs):
            raise UsageError(f"{where}: pictures: none, but models.{name} has a picture as input; name a photograph")


def _check_precisions(matrix: Matrix, where: str) -> None:
    """Refuse a precision of a model that none of the matrix's runtimes has."""
    known = {name for asked in matrix.runtimes.values() for name in (*asked.precisions, *asked.others)}
    for name, model in matrix.models.items():
        key = f"{_key('models', name)}.precisions"
        if len({*model.precisions}) < len(model.precisions):
            raise UsageError(f"{where}: {key}: {list(model.precisions)} has one twice; name each once")
        for each in model.precisions:
            if each not in known:
                raise UsageError(one_line(f"{where}: {key}: no runtime of it has {each!r}{suggest(each, known)}"))


def _check_tolerated(matrix: Matrix, known: Mapping[str, runtime.Runtime], where: str) -> None:
    for name, asked in matrix.runtimes.items():
        for precision in asked.precisions:
            if precision not in matrix.precisions and precision not in known[name].tolerances:
                raise UsageError(
                    f"{where}: runtimes.{name}.precisions: {precision!r} has no tolerance; add [precisions.{precision}]"
                )
