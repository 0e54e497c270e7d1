"""The long list in a JSON file, read piece by piece in bounded memory.

A piece ends where one object of the list is followed by the next. Whether a place is such an end is decided by the
parser: a piece that was cut inside an object is no JSON. Only a piece with a defect is taken apart object by object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from moesim.base.errors import SpecError
from moesim.traces.damage import Damage
from moesim.traces.json_repair import COMMA, repaired_object
from moesim.traces.stream import blocks

T = TypeVar("T")
PIECE = 4 << 20
"""Bytes that are decoded at once. [B]"""
HEADER = 64 << 20
"""Bytes in which the list must begin. [B]"""
TRIES = 32
"""Places inside an object that are taken for its end before more is read."""
LARGEST = 64 << 20
"""Bytes of the longest object. [B]"""
TRUNCATED = "file is cut: what came before is read"
LOST = "object left out: no JSON"
METADATA = "metadata left out: no JSON"
_OFFSET = re.compile(r"trailing characters \(byte (\d+)\)")
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")


@dataclass
class JsonList(Generic[T]):
    """Objects of a list in a JSON file, and what stands around it.

    Parameters
    ----------
    path, key
        File, and the key of the list at the top level; a file that is a list has no key.
    decode
        Reads a JSON list of objects; raises `msgspec.DecodeError` for one that is none.
    convert
        Makes one item of an object that had to be repaired.
    damage
        Where defects are counted.
    progress
        Called with the bytes read so far.

    Attributes
    ----------
    metadata
        The other keys at the top level, once all pieces were read.
    """

    path: Path
    key: str
    decode: Callable[[bytes], list[T]]
    convert: Callable[[dict[str, Any]], T]
    damage: Damage
    progress: Callable[[int], None] = lambda _taken: None
    metadata: dict[str, Any] = field(default_factory=dict)

    def pieces(self) -> Iterator[list[T]]:
        """Objects of the list, many at a time."""
        source = blocks(self.path, self.damage.note, self.progress)
        buffer, offset = self._header(source)
        ended, wanted = False, PIECE
        while not ended:
            parts, size = [buffer], len(buffer)
            more = True
            while size < wanted and more:
                block = next(source, b"")
                more = bool(block)
                parts.append(block)
                size += len(block)
            buffer = b"".join(parts)
            if more:
                items, used, ended = self._middle(buffer, offset)
            else:
                items, used, ended = self._last(buffer, offset)
                if not ended:
                    self.damage.note(TRUNCATED, offset + len(buffer))
                    ended, used = True, len(buffer)
            yield items
            buffer, offset = buffer[used:], offset + used
            wanted = len(buffer) + PIECE
        self._tail(buffer, source, offset)

    def _header(self, source: Iterator[bytes]) -> tuple[bytes, int]:
        """Read up to the beginning of the list: what is read behind it, and its offset."""
        word = re.compile(rb'"' + re.escape(self.key.encode()) + rb'"\s*:\s*')
        buffer, searched = b"", 0
        for block in source:
            buffer += block
            if not buffer.strip():
                continue
            if buffer.lstrip().startswith(b"["):
                place = buffer.index(b"[") + 1
                return buffer[place:], place
            found = word.search(buffer, searched)
            while found is not None and found.end() < len(buffer):
                if self._is_header(buffer[: found.start()]):
                    return self._begun(buffer, found.end())
                found = word.search(buffer, found.end())
            searched = max(0, len(buffer) - len(self.key) - 64) if found is None else found.start()
            if len(buffer) > HEADER:
                break
        found = word.search(buffer)
        if found is None or found.end() >= len(buffer):
            what = "is empty" if not buffer.strip() else f"no list '{self.key}' in its first {len(buffer):,} bytes"
            raise SpecError.single(str(self.path), "", what, "give a trace of the PyTorch profiler")
        self.damage.note(METADATA, 0)
        return self._begun(buffer, found.end())

    def _begun(self, buffer: bytes, place: int) -> tuple[bytes, int]:
        if buffer[place : place + 1] != b"[":
            word = buffer[place : place + 12].decode("utf-8", errors="replace").split(",")[0].split("\n")[0]
            what = f"is no list but '{word}' (offset {place:,})"
            raise SpecError.single(str(self.path), self.key, what, "the profiler wrote no events")
        return buffer[place + 1 :], place + 1

    def _is_header(self, before: bytes) -> bool:
        """Whether what stands before a key is the beginning of an object, so that the key is one of the top level."""
        text = before.rstrip()
        text = text[:-1] if text.endswith(b",") else text
        try:
            found = msgspec.json.decode(text + b"}")
        except msgspec.DecodeError:
            repaired = repaired_object(text + b"}")
            if repaired is None:
                return False
            found, repairs = repaired
            self.damage.note_all(repairs, 0)
        if not isinstance(found, dict):
            return False
        self.metadata.update(found)
        return True

    def _tail(self, buffer: bytes, source: Iterator[bytes], offset: int) -> None:
        """Keys behind the list."""
        text = (buffer + b"".join(source)).strip()
        if not text.startswith(b","):
            return
        try:
            found = msgspec.json.decode(b"{" + text[1:])
        except msgspec.DecodeError:
            repaired = repaired_object(b"{" + text[1:])
            if repaired is None:
                self.damage.note(METADATA, offset)
                return
            found, repairs = repaired
            self.damage.note_all(repairs, offset)
        if isinstance(found, dict):
            self.metadata.update(found)

    def _middle(self, buffer: bytes, offset: int) -> tuple[list[T], int, bool]:
        """Objects of a full buffer, the bytes that they take, and whether the list has ended."""
        end, inside = len(buffer), False
        for _ in range(TRIES):
            cut = _boundary(buffer, end)
            text = buffer if cut is None else buffer[: cut[0]] + b"]"
            try:
                return self.decode(b"[" + text), len(buffer) if cut is None else cut[1], cut is None
            except msgspec.DecodeError as error:
                if (stop := _list_end(error, buffer)) is not None:
                    return self.decode(b"[" + buffer[:stop]), stop, True
                inside = "truncated" in str(error)
            if cut is None or not inside:
                break
            end = cut[0]  # inside an object: an earlier place
        alone = _boundary(buffer, len(buffer)) is None
        if (inside or alone) and len(buffer) < LARGEST:
            return [], 0, False
        if alone:
            what = f"an object of more than {len(buffer):,} bytes (offset {offset:,})"
            raise SpecError.single(str(self.path), self.key, what, "the file is damaged")
        return self._apart(buffer, offset, final=False)

    def _last(self, buffer: bytes, offset: int) -> tuple[list[T], int, bool]:
        """Objects of what is left at the end of the file."""
        try:
            return self.decode(b"[" + buffer), len(buffer), True
        except msgspec.DecodeError as error:
            if (stop := _list_end(error, buffer)) is not None:
                return self.decode(b"[" + buffer[:stop]), stop, True
        return self._apart(buffer, offset, final=True)

    def _apart(self, buffer: bytes, offset: int, *, final: bool) -> tuple[list[T], int, bool]:
        """Objects one by one, each repaired or left out."""
        places = [0, *(match.end() for match in _BETWEEN.finditer(buffer))]
        stops = [*places[1:], len(buffer)]
        items: list[T] = []
        first, place = 0, 0
        while place < len(places):
            if not final and place == len(places) - 1:
                return items, places[first], False  # may go on in what is not read yet
            part = buffer[places[first] : stops[place]]
            one, stop = self._one(part)
            if one is not None:
                items.append(one[0])
                self.damage.note_all(one[1], offset + places[first])
            if stop is not None and (one is not None or first == place):
                if one is None and part[:stop].strip(b", ]\n\r\t"):
                    self.damage.note(LOST, offset + places[first])
                return items, places[first] + stop, True
            if (
                one is None
                and stop is None
                and place - first < 3
                and place + 1 < len(places)
                and not _starts_event(buffer, stops[place])
            ):
                place += 1  # cut inside an object: with the next part
                continue
            if one is not None or not part.strip():
                first = place = place + 1
                continue
            if not (final and first == len(places) - 1):  # the last one is told as the cut end of the file
                self.damage.note(LOST, offset + places[first])
            first = place = first + 1
        return items, len(buffer), False

    def _one(self, part: bytes) -> tuple[tuple[T, list[str]] | None, int | None]:
        """Item in a part and the repairs that it took; where the list ends in it."""
        ended = _ended_object(part)
        text, stop = (part[: ended[0]], ended[1]) if ended else (part, None)
        bare = text.strip(b", \n\r\t")
        if not bare:
            return None, stop
        commas = [COMMA] if ended and b"," in part[ended[0] : ended[1]] else []
        try:
            return (self.decode(b"[" + bare + b"]")[0], commas), stop
        except (msgspec.DecodeError, IndexError):
            pass
        repaired = repaired_object(bare)
        if repaired is None:
            return None, None if stop is not None and bare.count(b'"') % 2 else stop
        return (self.convert(repaired[0]), repaired[1]), stop


def _boundary(buffer: bytes, end: int) -> tuple[int, int] | None:
    """Last place before `end` where an object is followed by the next: behind the one, and where the other starts."""
    while (brace := buffer.rfind(b"{", 0, end)) > 0:
        before = buffer[max(0, brace - 256) : brace].rstrip()
        if before.endswith(b","):
            closed = before[:-1].rstrip()
            if closed.endswith(b"}"):
                return max(0, brace - 256) + len(closed), brace
        end = brace
    return None


def _list_end(error: msgspec.DecodeError, buffer: bytes) -> int | None:
    """Place behind the end of the list, where a parser stopped because of what follows it."""
    found = _OFFSET.search(str(error))
    if found is None:
        return None
    stop = int(found.group(1)) - 2  # the parser has taken what follows, and the bracket put in front
    return stop if re.match(rb'\s*(?:,\s*"|\})', buffer[stop : stop + 4096]) else None


def _starts_event(buffer: bytes, place: int) -> bool:
    """Whether what starts here looks like an event of a trace."""
    return re.match(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|bp|s)"\s*:', buffer[place : place + 64]) is not None


def _ended_object(part: bytes) -> tuple[int, int] | None:
    """Where the last object of the list ends and where the list does, if it does in this part."""
    for match in re.finditer(rb"\}\s*,?\s*\]", part):
        if re.match(rb'\s*(?:,\s*"|\}|$)', part[match.end() : match.end() + 4096]) and _balanced(
            part[: match.start() + 1]
        ):
            return match.start() + 1, match.end()
    if re.match(rb"\s*\]\s*(?:,|\}|$)", part):
        return 0, part.index(b"]") + 1
    return None


def _balanced(text: bytes) -> bool:
    """Whether brackets outside (well closed) strings close; damaged strings are taken as they come."""
    bare = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", text)
    return bare.count(b"{") == bare.count(b"}") and bare.count(b"[") == bare.count(b"]")
