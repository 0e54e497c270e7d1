"""Errors that name the place, the problem and the way out, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Issue:
    """One problem in what a user wrote.

    Parameters
    ----------
    where
        ``file:line`` or the option, such as ``--set ep``.
    path
        Field in the file, such as ``strategy.ep``.
    what
        What is wrong, with the numbers.
    fix
        What to write instead.

    Examples
    --------
    >>> print(Issue("s.yaml:7", "strategy.ep", "33 is not a divisor of 128 experts", "write 32"))
    s.yaml:7: strategy.ep: 33 is not a divisor of 128 experts; write 32
    """

    where: str
    path: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.where, self.path, self.what) if part)
        return f"{head}; {self.fix}" if self.fix else head


class SpecError(ValueError):
    """Input that cannot be used; ``str()`` has one line for each problem."""

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(issues)
        super().__init__("\n".join(str(issue) for issue in self.issues))

    @classmethod
    def single(cls, where: str, path: str, what: str, fix: str = "") -> SpecError:
        """Return the error of one problem."""
        return cls([Issue(where, path, what, fix)])

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Issue, ...]]]:
        return (type(self), (self.issues,))


@contextmanager
def blamed(option: str, instead: str = "") -> Iterator[None]:
    """Name an option in the problems that name another one, `instead`, or nothing at all.

    Examples
    --------
    >>> with blamed("--gpu"):
    ...     raise SpecError.single("", "", "no GPU 'h10'")
    Traceback (most recent call last):
    moesim.base.errors.SpecError: --gpu: no GPU 'h10'
    """
    try:
        yield
    except SpecError as error:
        raise SpecError(
            replace(issue, where=option + issue.where.removeprefix(instead))
            if issue.where == instead or (instead and issue.where.startswith(f"{instead} "))
            else issue
            for issue in error.issues
        ) from None


class Collector:
    """Gathers problems, so that a user sees all of them in one go."""

    def __init__(self) -> None:
        self.issues: list[Issue] = []

    def add(self, where: str | Issue, path: str = "", what: str = "", fix: str = "") -> None:
        """Note one problem: an `Issue`, or its parts."""
        self.issues.append(where if isinstance(where, Issue) else Issue(where, path, what, fix))

    def extend(self, issues: Iterable[Issue]) -> None:
        """Note several problems."""
        self.issues.extend(issues)

    def raise_if_any(self) -> None:
        """Raise a `SpecError` with every problem noted so far."""
        if self.issues:
            raise SpecError(self.issues)


@dataclass(frozen=True)
class Violation:
    """A strategy constraint that is broken.

    Parameters
    ----------
    rule
        Name of the rule, kebab-case; rules of a framework start with its name.
    message
        What is wrong, with the numbers.
    legal
        The values that would be legal.
    source
        Where the rule comes from.
    """

    rule: str
    message: str
    legal: str = ""
    source: str = ""

    def __str__(self) -> str:
        tail = f"; legal: {self.legal}" if self.legal else ""
        return f"{self.rule}: {self.message}{tail}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a suggestion followed by the known names; a long list is left out where there is a suggestion.

    Examples
    --------
    >>> did_you_mean("gpip", ["1f1b", "gpipe"])
    "did you mean 'gpipe'? (known: 1f1b, gpipe)"
    >>> did_you_mean("zzz", ["1f1b", "gpipe"])
    'known: 1f1b, gpipe'
    """
    names = sorted(set(known))
    if not names:
        return "none are known"
    listing = "known: " + ", ".join(names)
    suggestion = closest(word, names)
    if suggestion is None:
        return listing
    return f"did you mean '{suggestion}'?" + (f" ({listing})" if len(names) <= LONG_LIST else "")


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that a word is probably meant to be, or None."""
    import difflib  # only needed once something is wrong

    lower = {name.lower(): name for name in reversed(list(known))}
    cutoff = 0.5 if len(word) <= 3 else 0.6
    found = difflib.get_close_matches(word.lower(), list(lower), n=1, cutoff=cutoff)
    return lower[found[0]] if found else None


LONG_LIST = 16
"""Names beyond which a list is left out beside a suggestion."""
