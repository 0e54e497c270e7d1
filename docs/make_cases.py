"""Write docs/cases.md: questions and reports of practitioners, asked again: ``python docs/make_cases.py``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from case_checks import ROOT, SPLIT, Case, Outcome, cases, checks, outcome
from refresh import table

PAGE = ROOT / "docs" / "cases.md"
TEXT = """# Questions of practitioners

{total} questions and reports from issue trackers, pull requests and tables of others, each with a quantity that can be
checked. Written by `python docs/make_cases.py`, which runs every command below as it stands. What is expected and how far off
an answer may be is what was published, with a tolerance that was set before anything was asked;
[tests](../tests/published/test_cases.py) run the same table and fail where an answer begins or ceases to meet it. No constant
was fitted to these cases; runs that a fit of steps has seen are named.

A command sets what the report states; the rest is as the software has it. *Seen*: asked while moesim was built.

## Fully specified

{passed} of {full} are met ({share:.0%}), {unseen_passed} of {unseen} of those that were neither seen nor served a fit.
{seconds:.0f} s of one core for all.

{full_table}

## Partly specified

{asked} of {partial} were asked, as far as they can be, with what the report leaves open assumed; {part_passed} are met. They are no
score: a miss may be the guess, and what counts as small or as most is ours.

{part_table}

## Answers

{details}"""


def page(outcomes: Sequence[Outcome], known: Sequence[Case]) -> str:
    """The whole page."""
    by_case = {case.case: [one for one in outcomes if one.check.case == case.case] for case in known}
    full = [case for case in known if case.specified == "full"]
    partial = [case for case in known if case.specified != "full"]
    asked = [case for case in partial if by_case[case.case]]
    unseen = [case for case in full if not case.seen and not case.fitted]

    def met(chosen: Sequence[Case]) -> int:
        return sum(all(one.passed for one in by_case[case.case]) for case in chosen)

    head = ["case", "question", "marks", "assumed", "checks met", "met", "cause of a miss", "seconds"]
    return TEXT.format(
        total=len(known),
        passed=met(full),
        full=len(full),
        share=met(full) / len(full),
        unseen=len(unseen),
        unseen_passed=met(unseen),
        seconds=sum(one.seconds for one in outcomes),
        full_table=table(head, [_line(case, by_case[case.case]) for case in full], left=7),
        asked=len(asked),
        partial=len(partial),
        part_passed=met(asked),
        part_table=table(head, [_line(case, by_case[case.case]) for case in partial], left=7),
        details="\n".join(_detail(case, by_case[case.case]) for case in known if by_case[case.case]),
    )


def _line(case: Case, found: Sequence[Outcome]) -> list[str]:
    good = sum(one.passed for one in found)
    marks = ["seen"] * bool(case.seen) + [f"fitted: {case.fitted}"] * bool(case.fitted)
    verdict = "" if not found else "yes" if good == len(found) else "**no**"
    name = f"[{case.case}]({case.link})"
    ratio, spent = (f"{good} of {len(found)}", f"{sum(one.seconds for one in found):.1f}") if found else ("", "")
    return [name, case.question, ", ".join(marks), case.assumed, ratio, verdict, case.cause, spent]


def _detail(case: Case, found: Sequence[Outcome]) -> str:
    commands = list(dict.fromkeys(command for one in found for command in one.check.commands.split(SPLIT)))
    numbers = {command: str(place) for place, command in enumerate(commands, 1)}
    rows = []
    for one in found:
        check = one.check
        asked = ", ".join(numbers[command] for command in check.commands.split(SPLIT))
        expected = shown(number(check.expected)) + (f" ± {check.tolerance}" if check.tolerance else "")
        rows.append(
            [check.what, asked, f"`{check.field}`", shown(one.answer), expected, "yes" if one.passed else "**no**"]
        )
    listed = "\n".join(f"{place}: {command}" for command, place in numbers.items())
    head = ["what", "commands", "field", "answer", "expected", "met"]
    return f"### {case.case}\n\n```text\n{listed}\n```\n\n{table(head, rows, left=6)}\n"


def number(text: str) -> Any:
    """A number as one, other words as they are."""
    try:
        return float(text)
    except ValueError:
        return text


def shown(value: Any) -> str:
    """An answer in a cell of a table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(shown(one) for one in value)
    if isinstance(value, int | float):
        return f"{value:.4g}"
    return str(value).replace("\n", "<br>").replace("|", "/")


def main() -> None:
    """Run and write."""
    os.environ["COLUMNS"] = "120"
    PAGE.write_text(page([outcome(check) for check in checks()], cases()), encoding="utf-8")


if __name__ == "__main__":
    main()
