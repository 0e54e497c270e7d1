"""The result of every shipped scenario, number by number; a changed value is a change of meaning.

A change that is meant: ``python -m pytest tests/golden --force-regen`` rewrites the files (and fails once, so that
nobody does it unseen); the section **Numbers** of the changelog lists what moved.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import moesim
from moesim.spec import library

FOLDER = Path(__file__).parent
NAMES = [*library.names("scenarios"), *library.names("runs")]
TOLERANCE = 1e-9
KEPT = (
    "feasible",
    "step_time_s",
    "low_s",
    "high_s",
    "model_flop_per_token",
    "tflop_per_s_per_gpu",
    "mfu",
    "bubble_fraction",
    "breakdown_s",
    "exposed_s",
    "memory",
    "binding",
    "evidence",
    "assumed",
    "strategy",
)


def result(name: str) -> dict[str, Any]:
    plain = moesim.estimate(moesim.load(name)).to_dict()
    return {key: plain[key] for key in KEPT}


def differences(found: Any, expected: Any, path: str = "") -> list[str]:
    """Each value that differs, by its path."""
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = sorted({*found, *expected}, key=str)
        return [line for key in keys for line in differences(found.get(key), expected.get(key), f"{path}.{key}")]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, f"{path}[{index}]")]
    numbers = isinstance(found, float) and isinstance(expected, float | int)
    same = found == pytest.approx(expected, rel=TOLERANCE, abs=0) if numbers else found == expected
    return [] if same else [f"{path.lstrip('.')}: {found!r}, it was {expected!r}"]


@pytest.mark.parametrize("name", NAMES)
def test_the_result_of_a_scenario_is_as_before(name, request):
    file = FOLDER / f"{name}.json"
    found = json.loads(json.dumps(result(name)))
    if request.config.getoption("force_regen"):
        file.write_text(json.dumps(found, indent=1) + "\n")
        pytest.fail(f"{file.name} is written anew; look at its diff and list it in the changelog")
    changed = differences(found, json.loads(file.read_text()))
    assert not changed, "\n".join([f"{len(changed)} values of {name} changed:", *changed[:20]])


def test_every_file_belongs_to_a_scenario():
    assert sorted(file.stem for file in FOLDER.glob("*.json")) == sorted(NAMES)


def test_a_change_is_seen():
    assert differences({"a": [1.0, {"b": 2.0}]}, {"a": [1.0, {"b": 2.0 * (1 + 1e-8)}]}) == [
        "a[1].b: 2.0, it was 2.00000002"
    ]
    assert differences({"a": 1.0}, {"a": 1.0, "b": "x"}) == ["b: None, it was 'x'"]
    assert differences({"a": 1.0, "b": 2.0}, {"a": 1.0}) == ["b: 2.0, it was None"]
    assert differences([1.0], [1.0, 2.0])
    assert not differences({"a": 1.0 + 1e-12}, {"a": 1.0})
