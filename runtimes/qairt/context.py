"""From a graph to the context binary of one chip, prepared on this machine, and reading it back.

Preparing fails where the chip's memory is too small for how the graph was cut, and where an SDK spells the chip
differently. Both are tried out: the ways to name the chip first, then half the memory, and half of that.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from runtimes.contract import Json, Kind
from runtimes.kit.socs import Soc
from runtimes.kit.work import Failed, fail
from runtimes.qairt import sdk
from runtimes.qairt.interface import Stored
from runtimes.qairt.routes import NAME, Built
from runtimes.qairt.sdk import Ran, Sdk

BINARY = "context.bin"
BACKEND, HTP = "backend.json", "htp.json"
OPTIMIZATION = 3
_OF_MEMORY = re.compile(r"vtcm|tcm|out of memory|memory allocation", re.IGNORECASE)


def prepare(kit: Sdk, built: Built, soc: Soc, source: Path, folder: Path) -> tuple[Mapping[str, Path], list[str]]:
    """Return the files of a context binary for `soc`, by name, and notes on what had to be tried.

    Raises:
        Failed: no way to name the chip and no amount of memory did it; the message has the words of every attempt.
    """
    failed: list[tuple[str, Ran]] = []
    for number, (naming, vtcm_mb) in enumerate(_attempts(soc, failed)):
        place = folder / f"attempt{number}"
        place.mkdir()
        said = f"{', '.join(f'{key} {value}' for key, value in naming.items())}, vtcm_mb {vtcm_mb}"
        ran = _attempt(kit, built, naming, vtcm_mb, place)
        if ran:
            notes = [f"context for {earlier}: failed; {_first_error(of)}" for earlier, of in failed]
            notes += [f"context for {said}: made"] if failed else []
            files = {name: place / name for name in (BINARY, BACKEND, HTP)}
            return files, [*notes, *ran.notes]
        failed.append((said, ran))
    first = failed[0][1].failure(source)
    words = "\n".join(f"with {said}: {ran.failure(source).message}" for said, ran in failed)
    raise Failed(dataclasses.replace(first, message=words))


def configure(naming: Mapping[str, Json], vtcm_mb: int | None, libraries: str, place: Path) -> None:
    """Write the two files of JSON that tell the vendor's programs of a chip: `backend.json` names `htp.json`."""
    graph: dict[str, Json] = {"graph_names": [NAME], "O": OPTIMIZATION}
    if vtcm_mb is not None:
        graph["vtcm_mb"] = vtcm_mb
    htp: dict[str, Json] = {"graphs": [graph]}
    if naming:
        htp["devices"] = [dict(naming)]
    extensions = {
        "shared_library_path": f"{libraries}libQnnHtpNetRunExtensions.so",
        "config_file_path": HTP,
    }
    (place / HTP).write_text(json.dumps(htp, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (place / BACKEND).write_text(json.dumps({"backend_extensions": extensions}, indent=1) + "\n", encoding="utf-8")


def read_back(kit: Sdk, binary: Path, source: Path, folder: Path) -> tuple[list[Stored], list[Stored]]:
    """Return the inputs and the outputs of the only graph in a context binary, as the vendor's reader tells them.

    Raises:
        Failed: it cannot be read, or holds another number of graphs.
    """
    told = folder / "context.json"
    arguments: list[str | Path] = ["--context_binary", binary, "--json_file", told]
    ran = sdk.run(kit, "qnn-context-binary-utility", arguments, [told], folder)
    if not ran:
        raise Failed(ran.failure(source))
    try:
        graphs = [each["info"] for each in json.loads(told.read_text(encoding="utf-8"))["info"]["graphs"]]
        sides = [[Stored.told(each["info"]) for each in graphs[0][f"graph{side}"]] for side in ("Inputs", "Outputs")]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        fail(Kind.TOOLCHAIN, f"qnn-context-binary-utility: its JSON has another form than expected: {error!r}")
    if len(graphs) != 1:
        fail(Kind.TOOLCHAIN, f"the context binary holds {len(graphs)} graphs; one was asked for")
    return sides[0], sides[1]


def _attempts(soc: Soc, failed: list[tuple[str, Ran]]) -> Iterator[tuple[Mapping[str, Json], int]]:
    """Yield ways to name the chip and sizes of its memory, in the order in which to try them.

    Args:
        soc: the chip.
        failed: the attempts so far, which the caller keeps: one that speaks of memory has named the chip right.
    """
    namings: list[Mapping[str, Json]] = [
        {"soc_model": soc.number, "dsp_arch": soc.arch},
        {"dsp_arch": soc.arch},
        {"soc_id": soc.number, "dsp_arch": soc.arch},
    ]
    right = namings[0]
    for naming in namings:
        yield naming, soc.vtcm_mb
        if _OF_MEMORY.search(failed[-1][1].words):
            right = naming
            break
    vtcm_mb = soc.vtcm_mb // 2
    while vtcm_mb:
        yield right, vtcm_mb
        vtcm_mb //= 2


def _attempt(kit: Sdk, built: Built, naming: Mapping[str, Json], vtcm_mb: int, place: Path) -> Ran:
    configure(naming, vtcm_mb, f"{kit.libraries}/", place)
    made = place / BINARY
    arguments: list[str | Path] = [
        "--backend",
        kit.libraries / "libQnnHtp.so",
        *built.loaded,
        "--binary_file",
        made.stem,
    ]
    arguments += ["--output_dir", place, "--config_file", place / BACKEND, "--log_level", "error"]
    ran = sdk.run(kit, "qnn-context-binary-generator", arguments, [made], place)
    # What is delivered must not name a folder of this machine.
    configure(naming, vtcm_mb, "", place)
    return ran


def _first_error(ran: Ran) -> str:
    lines = ran.errors or tuple(line for line in ran.words.splitlines() if line.strip())
    return lines[0].strip() if lines else "it printed nothing"
