"""`python -m cormorant` is the command line."""

from cormorant.cli import main

main(prog_name="cormorant")
