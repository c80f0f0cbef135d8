"""Make the corpus: fetch what others ship, export the rest.

    python -m tests.corpus.make [FOLDER]

What is there already stays. The environment `corpus` is built where it is missing; nothing is written into the tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from aipc import home
from aipc.engines import install
from aipc.environment import Environment
from aipc.fetch import fetch
from tests.corpus import listing

ENVIRONMENT = "corpus"


def make(folder: Path) -> int:
    """Put every file of the list into `folder`; return 0 when all are there."""
    cache = home.cache_folder()
    pictures = folder / "photographs"
    pictures.mkdir(parents=True, exist_ok=True)
    for each in listing.photographs():
        shutil.copy(fetch(each, cache, print), pictures / each.name)
    for entry in listing.entries():
        path = folder / f"{entry.name}.onnx"
        if entry.file and not path.exists():
            shutil.copy(fetch(entry.file, cache, print), path)
    python = install.ensure(cache, Environment.load(ENVIRONMENT), print) / "bin" / "python"
    exported = [entry.name for entry in listing.entries() if not entry.file]
    done = subprocess.run(
        [python, "-P", "-m", "tests.corpus.export", folder, pictures, *exported],
        env={
            "PATH": os.defpath,
            "HOME": str(folder),
            "PYTHONPATH": str(listing.HERE.parent.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
        },
        check=False,
    )
    missing = [entry.name for entry in listing.entries() if not (folder / f"{entry.name}.onnx").exists()]
    print(f"{folder}: {len(missing)} of {len(listing.entries())} are missing: {', '.join(missing) or 'none'}")
    return done.returncode or bool(missing)


if __name__ == "__main__":
    sys.exit(make(Path(sys.argv[1]).absolute() if sys.argv[1:] else listing.folder()))
