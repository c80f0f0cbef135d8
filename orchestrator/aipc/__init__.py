"""aipc: PyTorch models onto AI accelerators, each cell compared with PyTorch's own answer.

This package is the host side. It never sees a tensor: vendor code runs in environments of its own,
and the two sides share only `runtimes.contract`.
"""

import sys
from pathlib import Path

__version__ = "0.1.0"

# A wheel carries the package `runtimes` in aipc/_home; in a checkout it is importable already.
_packed = Path(__file__).parent / "_home"
if _packed.is_dir() and str(_packed) not in sys.path:
    sys.path.append(str(_packed))
