"""docs/questions.yaml: every command parses, the quick ones answer with all their fields, and the page has them all."""

import ast
import importlib
import sys
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from moesim.cli.main import application

DOCS = Path(__file__).resolve().parents[1] / "docs"


def _table():
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("question_table")
    finally:
        sys.path.remove(str(DOCS))


TABLE = _table()
QUESTIONS = TABLE.questions()
each = pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.id)
each_quick = pytest.mark.parametrize("question", [one for one in QUESTIONS if not one.slow], ids=lambda one: one.id)


def test_thirty_questions_have_a_command_a_call_and_fields():
    assert [one.id for one in QUESTIONS] == [f"C{number:02d}" for number in range(1, 31)]
    assert len({one.command for one in QUESTIONS}) == len({one.python for one in QUESTIONS}) == 30
    assert all(len(one.fields) >= 2 and one.imports() for one in QUESTIONS)
    assert [one.id for one in QUESTIONS if not one.basis_paths] == ["C30"]


@each
def test_a_command_parses(question):
    name, *rest = question.arguments
    command = typer.main.get_command(application(question.arguments))
    assert isinstance(command, TyperGroup)
    verb = command.commands[name]
    context = verb.make_context(name, rest)
    assert context.params["as_json"] is True


@each
def test_a_question_stands_on_the_page(question):
    page = (DOCS / "questions.md").read_text(encoding="utf-8")
    assert f"## {question.id}: {question.question}" in page
    assert question.command in page
    section = page.partition(f"## {question.id}: ")[2]
    block = section.partition("```python\n")[2].partition("```")[0]  # a formatter may have broken its lines
    written = "\n".join([*question.imports(), question.python])
    assert ast.dump(ast.parse(block)) == ast.dump(ast.parse(written))


@each_quick
def test_an_answer_has_all_its_fields_and_says_them(question, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = TABLE.asked(question)
    assert TABLE.missing(question, answer.plain) == []
    words = TABLE.said(question, answer.plain)
    assert words
    assert not set("{}<>") & set(words)


@pytest.mark.parametrize("name", ["C04", "C09", "C15", "C24", "C26", "C29"])
def test_the_call_says_what_the_command_says(name):
    question = next(one for one in QUESTIONS if one.id == name)
    called, asked = TABLE.called(question), TABLE.asked(question).plain
    pairs = zip(called, asked["cases"], strict=True) if isinstance(called, list) else [(called, asked)]
    for answer, told in pairs:
        plain = answer.to_dict()
        for key in plain.keys() - {"basis"}:
            same = pytest.approx(plain[key]) if isinstance(plain[key], float) else plain[key]
            assert told[key] == same


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "", []])
def test_a_field_without_a_value_is_missing(value):
    question = QUESTIONS[3]
    plain = TABLE.asked(question).plain
    assert TABLE.missing(question, plain) == []
    plain["peak_bytes"] = value
    assert [line.partition(":")[0] for line in TABLE.missing(question, plain)] == ["GPU peak"]
    del plain["peak_bytes"]
    assert len(TABLE.missing(question, plain)) == 1
    del plain["basis"]["evidence"]
    assert len(TABLE.missing(question, plain)) == 2
