"""Write docs/questions.md: thirty questions that practitioners ask, each asked by one command, with its answer.

``python docs/make_questions.py [--commands] [C01 C02 ...]`` runs the commands and the Python calls of docs/questions.yaml; with
names, only those are run, and the page is not written. With ``--commands`` the calls are left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from question_table import Answer, Question, asked, called, missing, questions, said

PAGE = Path(__file__).resolve().parent / "questions.md"
HEAD = """# Thirty questions

Written by `python docs/make_questions.py` from `docs/questions.yaml`, which runs every command: what stands here is what it
printed. Each question is one command and one call in Python. Beside its own fields, each answer rests on a step (`basis` in its
JSON), or for a collective on its own price: with the ends of a 90 % interval, how strong the evidence is, and what binds. All verbs
of this page but `check` take one measured number: `--measured 19.7s`, `1234tok/s` or `245TFLOP/s` of a GPU, or an MFU of `25%` (for a
collective a bus bandwidth or a time), and say whether it lies inside. Seconds are of one core.

{table}
"""


def section(question: Question, answer: Answer) -> str:
    """A question with its command, call, fields and answer."""
    fields = "; ".join(
        f"{name} `{'`, `'.join(paths)}`" for name, paths in {**question.fields, **_basis(question)}.items()
    )
    imports = "\n".join(question.imports())
    return f"""## {question.id}: {question.question}

{said(question, answer.plain)}

```sh
{question.command}
```
```python
{imports}

{question.python}
```

Fields: {fields}. {answer.seconds:.1f} s.
"""


def _basis(question: Question) -> dict[str, list[str]]:
    paths = question.basis_paths
    return {"interval, evidence, what binds": paths} if paths else {}


def main(names: list[str]) -> int:
    """Ask the questions; the number of those that are not answered."""
    calls, names = "--commands" not in names, [name for name in names if name != "--commands"]
    wanted = [one for one in questions() if not names or one.id in names]
    sections, rows, lacking = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # where plots go
        for question in wanted:
            answer = asked(question)
            if calls:
                called(question)
            lacks = missing(question, answer.plain)
            lacking += bool(lacks)
            print(
                question.id,
                f"{answer.seconds:.1f} s",
                *(lacks or [said(question, answer.plain)]),
                sep="\n  ",
                flush=True,
            )
            sections.append(section(question, answer))
            anchor = f"[{question.id}](#{_anchor(question)})"
            rows.append(f"| {anchor} | {question.question} | `{question.command.split()[1]}` | {answer.seconds:.1f} |")
    if not names and not lacking:
        table = "\n".join(["| | question | verb | seconds |", "| --- | --- | --- | ---: |", *rows])
        PAGE.write_text(HEAD.format(table=table) + "\n" + "\n".join(sections))
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(PAGE)], check=True)
    return lacking


def _anchor(question: Question) -> str:
    """The anchor that a heading gets on common sites."""
    text = f"{question.id}: {question.question}".lower()
    return "".join(letter for letter in text if letter.isalnum() or letter in " -").replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
