import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moesim.base.errors import SpecError
from moesim.base.registry import Registry


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[Callable[[], str]]]:
    folder = tmp_path / "toy_methods"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from moesim.base.registry import Registry\n"
        "toys = Registry('toy', package='toy_methods', entry_points='moesim.no_such_group')\n"
    )
    for name in ("ball", "kite"):
        (folder / f"{name}.py").write_text(
            "from toy_methods import toys\n"
            f"@toys.register('{name}', summary='a {name}', source='the attic')\n"
            f"def play(): return '{name}!'\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("toy_methods").toys
    for name in [name for name in sys.modules if name.startswith("toy_methods")]:
        del sys.modules[name]


def test_files_of_the_package_register_themselves(toys: Registry[Callable[[], str]]) -> None:
    assert toys.names() == ["ball", "kite"]
    assert toys.get("kite")() == "kite!"
    assert [(entry.name, entry.summary, entry.source) for entry in toys.entries()] == [
        ("ball", "a ball", "the attic"),
        ("kite", "a kite", "the attic"),
    ]
    assert "ball" in toys
    assert "drum" not in toys


def test_an_unknown_name_gets_a_suggestion(toys: Registry[Callable[[], str]]) -> None:
    with pytest.raises(SpecError) as error:
        toys.get("kites", "s.yaml:3", "strategy.toy")
    assert str(error.value) == "s.yaml:3: strategy.toy: no toy 'kites'; did you mean 'kite'? (known: ball, kite)"


def test_a_name_is_taken_once(toys: Registry[Callable[[], str]]) -> None:
    toys.names()
    with pytest.raises(ValueError, match="toy 'ball' is registered twice"):
        toys.add("ball", lambda: "", summary="", source="")
    toys.remove("ball")
    assert toys.names() == ["kite"]


def test_other_packages_add_through_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry[str]("tune", package="", entry_points="moesim.test_tunes")
    (tmp_path / "extra_tunes.py").write_text("def load():\n    registry.add('waltz', '3/4', summary='', source='')\n")
    info = tmp_path / "extra_tunes-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-tunes\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[moesim.test_tunes]\nwaltz = extra_tunes:load\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(__import__("extra_tunes"), "registry", registry, raising=False)
    assert registry.names() == ["waltz"]
