"""The command `aipc`. Every error that a person can mend ends here, as one line and an exit code."""

from __future__ import annotations

import errno
import json
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import aipc
from aipc import home, options, project, upkeep
from aipc.agent import study_command
from aipc.errors import AipcError, CellNotGreen, EngineError, NothingSelected, UsageError
from aipc.home import RUNS
from aipc.options import json_option, matrix_option, runs_option, with_engine
from runtimes.contract import Json, Misused, encode

if TYPE_CHECKING:
    from aipc.cell import Cell
    from aipc.config import Matrix

INTERRUPTED = 130
DISK_HINTS = {
    errno.ENOSPC: "make space (`aipc clean` removes what is old) and run the same command again",
    errno.EDQUOT: "make space (`aipc clean` removes what is old) and run the same command again",
    errno.EROFS: "the file system is read-only; name another folder",
    errno.EACCES: "you may not; change its permissions or name another folder",
    errno.EPERM: "you may not; change its permissions or name another folder",
}


class _Commands(click.Group):
    """The group of all commands; it turns what went wrong into a line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AipcError as error:
            _fail(str(error), error.exit_code)
        except Misused as error:
            _fail(str(error), UsageError.exit_code)
        except KeyboardInterrupt:
            _fail("interrupted; finished steps are kept, the same command goes on from there", INTERRUPTED)
        except OSError as error:
            if error.errno is None:
                raise
            hint = DISK_HINTS.get(error.errno, "see to it, or name another place; then run the same command again")
            _fail(f"{error.filename or 'disk'}: {error.strerror}; {hint}", EngineError.exit_code)


def _fail(text: str, code: int) -> None:
    click.echo(f"aipc: {text}", err=True)
    sys.exit(code)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(aipc.__version__, prog_name="aipc")
def main() -> None:
    """Take a PyTorch model to a chip's runtime, and believe only what a judge has measured.

    A cell is one thing to deploy: MODEL[#SHAPE]/RUNTIME/PRECISION[@TARGET], for instance esrgan/openvino/fp16@cpu.
    """
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    """Make a polite kill an interruption: jobs and containers end before we do."""
    raise KeyboardInterrupt


@main.command(short_help="Convert a model, and prove that it computes the same.")
@click.argument("model")
@click.option("--runtime", default="", help="The toolchain to convert with; `aipc list` names them.")
@click.option("--precision", default="", help="For instance fp16; the runtime's default otherwise.")
@click.option("--target", default="", help="What to build for; the runtime's default otherwise.")
@click.option("--shape", default="", metavar="HxW", help="Another input size, 64x96, or a whole shape, 1x3x64x96.")
@click.option("--source", type=click.Path(file_okay=False, path_type=Path), help="The folder of a module:function.")
@click.option("--trusted", is_flag=True, help="Let a checkpoint or .pt2 run code while it is read.")
@runs_option
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help="A folder of pictures, .npy or .npz files to quantise with; otherwise the matrix's pictures.",
)
@click.option(
    "--encodings",
    type=click.Path(path_type=Path),
    help="A file of AIMET's with ranges to quantise with, for a runtime that takes one.",
)
@click.option(
    "--rewrite",
    "rewrites",
    multiple=True,
    metavar="NAME",
    help="Rewrite the ONNX model before it is converted, as a rewrite of that name does; several follow each other.",
)
@click.option(
    "--agent",
    type=click.Choice(["off", "repair", "drive"]),
    default=None,
    help="Whether a language model helps, where the rules do not do (repair) or from the export on (drive); "
    "[agent] in matrix.toml says which model.",
)
@click.option(
    "--replay", type=click.Path(path_type=Path), help="A transcript that answers in a language model's place."
)
@click.option("--without-skills", is_flag=True, help="Do not let the agent read the skills.")
@click.option(
    "--withhold",
    "withheld",
    multiple=True,
    metavar="NAME",
    help="Let no rule try this rewrite, as in a study of agents.",
)
@json_option
@matrix_option
@with_engine
def deploy(*, as_json: bool, **given: Any) -> None:
    """Deploy MODEL: convert it, and prove that the artefact computes what PyTorch computes.

    MODEL is a model of matrix.toml, a file (.onnx, .pt2, .pth, .safetensors), module:function, or a whole cell.
    """
    from aipc import asked as asking
    from aipc import config, sweep
    from aipc import runtime as runtimes
    from aipc.reports import report as reports
    from aipc.reports import text
    from aipc.store import Store

    asked = asking.Asked(
        **{**given, "agent": given["agent"] or "", "matrix_path": given["matrix_path"] or home.matrix_here()}
    )
    matrix = options.matrix(asked.matrix_path)
    found, cell = asking.find(matrix, asked)
    _check_writable(asked.runs)
    config.tolerance(matrix, runtimes.find(cell.runtime), cell.precision)
    asking.check_rewrites(asked, cell)
    asking.check_withheld(asked.withheld, cell, "--withhold")
    console = options.console(stderr=as_json)
    store = Store(home.store_folder())
    # The engine first: it ends what orphans still run, then what they left can go.
    with options.opened(asked.engine, asked.base_image) as opened, store.in_use():
        store.sweep()
        console.print(f"[bold]{cell}[/] on the {opened.name} engine ({opened.reason})", highlight=False)
        place = sweep.Place(matrix=matrix, engine=opened, store=store, console=console)
        published = sweep.deploy(place, asked, found, cell)
    if as_json:
        click.echo((published.folder / reports.FILE_NAME).read_text(encoding="utf-8"))
    else:
        text.show(published.report, published.folder, console)
    if not published.report:
        sys.exit(CellNotGreen.exit_code)


@main.command(short_help="Deploy all cells of matrix.toml.")
@click.argument("select", nargs=-1)
@runs_option
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the table of results to this file too.")
@matrix_option
@with_engine
def matrix(
    select: tuple[str, ...],
    runs: Path,
    markdown: Path | None,
    matrix_path: Path | None,
    engine: str,
    base_image: str,
) -> None:
    """Deploy the cells of matrix.toml one after the other; SELECT is a pattern such as 'esrgan*/openvino/*'.

    A cell that fails does not stop the others. What is done is kept: the same command goes on from there.
    The exit code is 0 when every cell is as expected: agrees, untried where its device is not here, or what
    matrix.toml expects of it.
    """
    from aipc import sweep
    from aipc.store import Store

    matrix_path = matrix_path or home.matrix_here()
    found = options.matrix(matrix_path)
    chosen = _chosen(found, select)
    for folder in (runs, *([markdown.parent] if markdown else [])):
        _check_writable(folder)
    console = options.console()
    store = Store(home.store_folder())
    with options.opened(engine, base_image) as opened, store.in_use():
        store.sweep()
        place = sweep.Place(matrix=found, engine=opened, store=store, console=console)
        done = sweep.run(place, chosen, runs, matrix_path, base_image, markdown)
    if not done:
        raise CellNotGreen(sweep.unexpected(done))


def _check_writable(folder: Path) -> None:
    """Find out before any work whether a report can be written into `folder`.

    Raises:
        OSError: it cannot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / ".probe"
    probe.touch()
    probe.unlink(missing_ok=True)


@main.command("list")
@json_option
@matrix_option
def list_(*, as_json: bool, matrix_path: Path | None) -> None:
    """Show the models, runtimes, precisions and targets that there are."""
    from rich.table import Table

    from aipc.runtime import all_runtimes

    matrix = options.matrix(matrix_path)
    if as_json:
        listed = [_part(model, "name", "source", "inputs", "outputs", "licence") for model in matrix.models.values()]
        parts = "name", "title", "precisions", "quantized", "targets", "default_precision", "default_target"
        builders = [_part(each, *parts) for each in all_runtimes() if each.builds]
        click.echo(json.dumps({"models": listed, "runtimes": builders}, indent=2))
        return
    models = Table("model", "source", "inputs", "licence", title="Models", title_justify="left", box=None)
    for model in matrix.models.values():
        shapes = ", ".join(f"{port.name} {'x'.join(map(str, port.shape))}" for port in model.inputs)
        models.add_row(model.name, model.architecture or model.source.value, shapes or "from the file", model.licence)
    runtimes = Table("runtime", "name", "precisions", "targets", title="Runtimes", title_justify="left", box=None)
    for found in all_runtimes():
        if found.builds:
            runtimes.add_row(found.name, found.title, ", ".join(found.precisions), ", ".join(found.targets))
    console = options.console()
    console.print(models)
    console.print()
    console.print(runtimes)


def _part(of: object, *keys: str) -> dict[str, Json]:
    told = encode(of)
    return {key: told[key] for key in keys}


@main.command(short_help="Show the cells of matrix.toml.")
@click.argument("select", nargs=-1)
@json_option
@matrix_option
def plan(select: tuple[str, ...], as_json: bool, matrix_path: Path | None) -> None:
    """Show the cells of matrix.toml; SELECT is a pattern such as 'esrgan*/openvino/*'."""
    chosen = _chosen(options.matrix(matrix_path), select)
    if as_json:
        click.echo(json.dumps([{"cell": str(cell), **encode(cell)} for cell in chosen], indent=2))
    else:
        for cell in chosen:
            click.echo(str(cell))


def _chosen(matrix: Matrix, select: tuple[str, ...]) -> tuple[Cell, ...]:
    """Return the cells of `matrix` that a command line selects.

    Raises:
        NothingSelected: none.
    """
    from aipc import cell as cells

    chosen = cells.select(cells.cells(matrix), select)
    if not chosen:
        raise NothingSelected(f"{' '.join(select) or 'matrix.toml'}: no cell is selected; `aipc plan` shows them all")
    return chosen


@main.command(short_help="Show what is in a model file.")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
@with_engine
def inspect(file: Path, as_json: bool, engine: str, base_image: str) -> None:
    """Show what is in a model FILE, and what would keep it from being deployed as it is: then the exit code is 1."""
    from rich.console import Console

    from aipc import pipeline
    from aipc.jobs import Session
    from aipc.progress import Screen
    from aipc.reports import text, words
    from aipc.store import Store

    store = Store(home.store_folder())
    console = Console(stderr=True)
    with options.opened(engine, base_image) as opened, store.in_use(), Screen(console) as screen:
        opened.report = lambda text: screen.progress(text, None)
        session = Session(engine=opened, store=store, cache=home.cache_folder(), listener=screen)
        run = pipeline.inspect(session, file)
    if run.result.failure:
        raise CellNotGreen(f"{file}: {words.headline(run.result.failure.message)}")
    if as_json:
        click.echo(json.dumps(encode(run.result.facts), indent=2))
    else:
        text.show_facts(run.result.facts, options.console())
    broken = [gate["name"] for gate in run.result.facts.get("gates", ()) if not gate["passed"]]
    if broken:
        raise CellNotGreen(f"{file}: does not pass {', '.join(broken)}; the lines above say why")


@main.command(short_help="Say whether an ONNX file computes what a model computes.")
@click.argument("model")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--precision", default="fp32", show_default=True, help="Whose tolerances hold.")
@click.option("--shape", default="", metavar="HxW", help="Another input size, 64x96, or a whole shape, 1x3x64x96.")
@click.option("--source", type=click.Path(file_okay=False, path_type=Path), help="The folder of a module:function.")
@json_option
@matrix_option
@with_engine
def judge(*, as_json: bool, **given: Any) -> None:
    """Say whether the ONNX FILE computes what MODEL computes, for instance after a change of its graph.

    MODEL is what `aipc deploy` takes. ONNX Runtime runs FILE, and the judge compares; the exit code is 0 if it agrees.
    """
    from aipc import asked as asking
    from aipc import cell as cells
    from aipc import config, judging, pipeline, runtime
    from aipc.jobs import Session
    from aipc.progress import Screen
    from aipc.reports import text
    from aipc.store import Store

    matrix = options.matrix(given["matrix_path"])
    name, _, marked = given["model"].partition("#")
    shape = marked or given["shape"]
    size = cells.parse_shape(shape) if shape else ()
    model = asking.find_model(matrix, name, size, given["source"], trusted=False)
    limit = config.tolerance(matrix, runtime.find(pipeline.REFERENCE), given["precision"])
    store = Store(home.store_folder())
    console = options.console(stderr=True)
    with options.opened(given["engine"], given["base_image"]) as opened, store.in_use(), Screen(console) as screen:
        opened.report = lambda said: screen.progress(said, None)
        session = Session(engine=opened, store=store, cache=home.cache_folder(), listener=screen)
        found = judging.judge(session, matrix, model, given["file"], RUNS, limit)
    if as_json:
        click.echo(json.dumps(encode(found), indent=2))
    else:
        text.show_facts(encode(found), options.console())
    if not found:
        raise CellNotGreen(f"{given['file']}: {found.verdict.value}; the lines above say why")


@main.command(short_help="Show the report of a cell again.")
@click.argument("cell")
@runs_option
@json_option
def report(cell: str, runs: Path, as_json: bool) -> None:
    """Show the report of a CELL again, and write its page anew."""
    from aipc import cell as cells
    from aipc.reports import html, text
    from aipc.reports import report as reports
    from aipc.reports.publish import held

    folder = runs / cells.parse(cell).folder
    path = folder / reports.FILE_NAME
    if not path.is_file():
        raise NothingSelected(f"{path}: there is no report; `aipc deploy {shlex.quote(cell)}` makes it")
    found = reports.read(path)
    if as_json:
        click.echo(path.read_text(encoding="utf-8"))
        return
    with held(folder):
        html.write(found, folder)
    text.show(found, folder, options.console())


for command in (
    study_command.study,
    project.init,
    project.mcp,
    upkeep.doctor,
    upkeep.clean,
    upkeep.images,
    upkeep.lock,
):
    main.add_command(command)
