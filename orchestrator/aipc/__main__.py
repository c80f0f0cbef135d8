"""`python -m aipc` is the command `aipc`."""

from aipc.cli import main

main(prog_name="aipc")
