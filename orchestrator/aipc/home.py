"""Where aipc's own files are: the runtimes, the images, matrix.toml, and the cache.

`HOME` is the checkout, or inside an installed wheel the folder `aipc/_home`.
The environment variable AIPC_HOME names another one, for instance a temporary checkout of a test.
"""

from __future__ import annotations

import os
from pathlib import Path


def _find_home() -> Path:
    chosen = os.environ.get("AIPC_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    package = Path(__file__).absolute().parent
    packed = package / "_home"
    return packed if packed.is_dir() else package.parent.parent


HOME: Path = _find_home()
"""The folder that holds runtimes/, images/ and matrix.toml. The functions below read it each time they are called."""


RUNS = Path("runs")
"""Where reports go when nobody says otherwise."""


def runtimes_folder() -> Path:
    """Return the folder with one folder for each runtime."""
    return HOME / "runtimes"


def images_folder() -> Path:
    """Return the folder with one folder for each environment."""
    return HOME / "images"


def skills_folder() -> Path:
    """Return the folder of the skills, one folder each."""
    return HOME / "skills"


def may_clean(checkout: str) -> bool:
    """Return whether what the checkout in the folder `checkout` has made may go when nothing here needs it.

    It may when that is this checkout, or one that is gone (or "", nobody knows which); others share the same cache.
    """
    return checkout in {"", str(HOME)} or not Path(checkout).is_dir()


def matrix_here() -> Path | None:
    """Return the matrix of the current folder, as a person there would name it; None for none.

    That of a checkout of aipc belongs to aipc: only `HOME` says which of these is used.
    """
    here = Path("matrix.toml")
    return here if here.is_file() and not Path("runtimes", "contract.py").exists() else None


def matrix_file() -> Path:
    """Return the matrix that is used when the user names none: that of the current folder, else aipc's own."""
    return matrix_here() or own_matrix_file()


def own_matrix_file() -> Path:
    """Return the matrix that comes with aipc."""
    return HOME / "matrix.toml"


def cache_folder() -> Path:
    """Return where downloads, environments and results are kept; it may not exist yet.

    It is $AIPC_CACHE, else $XDG_CACHE_HOME/aipc, else ~/.cache/aipc.
    """
    chosen = os.environ.get("AIPC_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rule: a relative path there is invalid and ignored.
    return (Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache") / "aipc"


def store_folder() -> Path:
    """Return where results are kept: $AIPC_STORE, else the folder `store` of the cache."""
    chosen = os.environ.get("AIPC_STORE")
    return Path(chosen).expanduser().absolute() if chosen else cache_folder() / "store"
