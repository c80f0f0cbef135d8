"""Without an SDK: a real `.dlc`, by the serialiser that ONNX Runtime's QNN provider brings along.

Where the target is a chip, the provider asks its validator for every node before `libQnnIr.so` writes the graph; for
the others it asks the serialiser alone, which takes more.
"""

from __future__ import annotations

import contextlib
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

from runtimes.contract import Failure, Kind
from runtimes.kit import qualcomm
from runtimes.kit.ports import Port
from runtimes.kit.socs import SOCS
from runtimes.kit.work import Failed, fail
from runtimes.qairt.targets import Target

WEIGHTS = "model.params.bin"


def write(source: Path, target: Target, dlc: Path) -> list[dict[str, str]]:
    """Write `dlc` for the ONNX model `source`, and return where each node goes.

    Raises:
        Refused: a size of an input is open, or a node is not taken.
        Failed: it is no ONNX, or no single file came of it.
    """
    qualcomm.check_static(source)
    folder = dlc.parent / "serialised"
    folder.mkdir()
    backend = {"backend_type": "ir"}
    if soc := SOCS.get(target):
        dumped = {"dump_qnn_ir_dlc": "1", "dump_qnn_ir_dlc_dir": str(folder)}
        backend = {"backend_type": "htp", "soc_model": str(soc.number), **dumped}
    # The serialiser by itself writes where it stands.
    with contextlib.chdir(folder):
        opened = qualcomm.open_session(source.absolute(), backend, {}, dlc.parent / "serialiser.log")
    placement = [{"node": node.name, "op": node.op, "device": target.device} for node in opened.nodes]
    _take(folder, dlc)
    return placement


def _take(folder: Path, dlc: Path) -> None:
    """Move the only file that was made to `dlc`."""
    made = sorted(folder.glob("*.dlc"))
    if len(made) != 1:
        fail(
            Kind.TOOLCHAIN,
            f"ONNX Runtime's QNN provider took every node, but wrote {len(made)} containers; one was asked for",
            hint="every part that stands alone becomes a container: write what parts the graph with other operators",
        )
    made[0].rename(dlc)


def check(dlc: Path, ports: Sequence[Port]) -> None:
    """Read a container back: its parts are there, and the graph in it has the names of the model's inputs and outputs.

    Raises:
        Failed: it is not whole.
    """
    parts = _parts(dlc)
    if not parts.get("model"):
        fail(Kind.MISSING_RESULT, f"{dlc.name}: holds {sorted(parts)}, but no graph, which would be called 'model'")
    for port in ports:
        name = port.name.encode()
        # The graph is a flatbuffer: a string in it is its length, its bytes and a zero.
        if struct.pack("<I", len(name)) + name + b"\0" not in parts["model"]:
            fail(Kind.TOOLCHAIN, f"{dlc.name}: the graph in it has nothing that is called {port.name!r}")


def _parts(dlc: Path) -> dict[str, bytes]:
    """Return the parts of a container. It is a ZIP archive whose check sums are wrong: none is looked at."""
    try:
        with zipfile.ZipFile(dlc) as archive:
            entries = archive.infolist()
    except (OSError, zipfile.BadZipFile) as error:
        raise Failed(Failure(kind=Kind.MISSING_RESULT, message=f"{dlc.name}: is no container")) from error
    parts = {}
    with dlc.open("rb") as file:
        for entry in entries:
            file.seek(entry.header_offset + 26)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
            file.seek(name_bytes + extra_bytes, 1)
            # Of the weights only the name is of interest.
            parts[entry.filename] = b"" if entry.filename == WEIGHTS else file.read(entry.compress_size)
    return parts
