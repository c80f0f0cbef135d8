"""The commands for who deploys with a coding agent: `init` and `mcp`."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import click

from aipc.errors import UsageError
from aipc.options import matrix_option, runs_option, with_engine
from aipc.tables import show


@click.command(short_help="Start a project for coding agents.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--model", default="", help="What is deployed: a model of aipc's matrix, a file, or module:function.")
@click.option("--runtime", "runtimes", multiple=True, help="To which runtime; may be said again. All, otherwise.")
@click.option("--precision", default="", help="For instance fp16; the runtime's default otherwise.")
@click.option("--target", default="", help="What to build for; the runtime's default otherwise.")
@click.option("--source", type=click.Path(file_okay=False, path_type=Path), help="The folder of a module:function.")
def init(folder: Path, model: str, runtimes: tuple[str, ...], precision: str, target: str, source: Path | None) -> None:
    """Start a project in DIR that a coding agent and a person deploy a model with.

    It gets AGENTS.md (and CLAUDE.md, a link to it), PLAN.md, matrix.toml and the skills. What is there already is
    never overwritten.
    """
    from aipc import scaffold

    wanted = scaffold.Wanted(model=model, runtimes=runtimes, precision=precision, target=target, source=source)
    made = scaffold.make(folder, wanted)
    for path in made.added:
        click.echo(f"added  {show(path)}")
    if not made.added:
        click.echo("nothing was missing")
    if not shutil.which("aipc"):
        click.echo(
            f"aipc is not on the PATH, where an agent looks for it: {Path(sys.argv[0]).absolute().parent} holds it"
        )
    click.echo(f"next   cd {shlex.quote(str(folder))} && aipc deploy {shlex.quote(str(made.cells[0]))}")
    if made.kept:
        names = ", ".join(map(show, made.kept))
        raise UsageError(f"{names}: kept, though not what was asked for; compare, or move away and run the same again")


@click.command(short_help="Serve these commands to an MCP client.")
@runs_option
@matrix_option
@with_engine
def mcp(runs: Path, matrix_path: Path | None, engine: str, base_image: str) -> None:
    """Serve inspect, deploy, judge, report, list, plan and the skills to an MCP client, over stdin and stdout.

    A client starts it in the folder of the project.
    """
    from aipc.serving import server

    given = {"--runs": str(runs), "--matrix": str(matrix_path or ""), "--engine": engine, "--base-image": base_image}
    server.serve({option: value for option, value in given.items() if value})
