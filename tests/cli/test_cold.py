"""What a cold start loads."""

import json
import subprocess
import sys

import pytest

HEAVY = ("pandas", "scipy", "matplotlib", "networkx", "joblib", "jinja2", "ipywidgets", "IPython")

SCRIPT = """
import json, sys
sys.argv = ["moesim", *{arguments}]
from moesim.cli.main import main
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})), file=sys.stderr)
"""


def loaded(*arguments: str) -> set[str]:
    script = SCRIPT.format(arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("estimate", "--help"),
        ("roofline", "--help"),
        ("report", "--help"),
        ("kernel", "gemm", "--help"),
        ("estimate", "qwen3-235b-h100x256"),
        ("estimate", "qwen3-235b-h100x256", "--json"),
        ("explain", "qwen3-235b-h100x256"),
        ("specs",),
    ],
)
def test_no_verb_loads_what_it_does_not_need(arguments):
    assert not loaded(*arguments) & set(HEAVY)


def test_the_package_alone_loads_next_to_nothing():
    script = "import moesim, sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numpy", "pydantic", "rich", *HEAVY} & set(done.stdout.split())
