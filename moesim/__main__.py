"""``python -m moesim``."""

from moesim.cli.main import main

main()
