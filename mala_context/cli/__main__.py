"""`python -m mala_context.cli`."""

from mala_context.cli import main

main()
