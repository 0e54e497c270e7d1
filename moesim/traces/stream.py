"""Bytes of a file as they come: gzip told by its first bytes, and a stream that breaks off says where."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from moesim.base.errors import SpecError

GZIP = b"\x1f\x8b"
PLAIN_BLOCK, GZIP_BLOCK = 1 << 20, 1 << 16
"""Bytes read from disk at a time; gzip may hold a thousand times as much. [B]"""
BROKEN = "compressed stream is broken: what came before is read"
CUT = "compressed stream is cut: what came before is read"


def existing(path: Path) -> Path:
    """Path of a file that can be opened; a `SpecError` with one line where there is none."""
    if path.is_dir():
        raise SpecError.single(str(path), "", "is a folder", "name a file")
    if not path.exists():
        raise SpecError.single(str(path), "", "there is no such file", "name a trace")
    return path


def head_of(path: Path, size: int = 1 << 16) -> bytes:
    """First bytes of a file, without its gzip."""
    found = b""
    for block in blocks(path):
        found += block
        if len(found) >= size:
            break
    return found[:size]


def whole(path: Path, defect: Callable[[str, int], None] = lambda _what, _offset: None) -> bytes:
    """Contents of a file, without its gzip."""
    return b"".join(blocks(path, defect))


def blocks(
    path: Path,
    defect: Callable[[str, int], None] = lambda _what, _offset: None,
    progress: Callable[[int], None] = lambda _taken: None,
) -> Iterator[bytes]:
    """Contents of a file in blocks, decompressed where it is gzip.

    Parameters
    ----------
    path
        File; several gzip members in a row are one content.
    defect
        Called with a defect of the compressed stream and its offset in the file.
    progress
        Called with the bytes taken from disk so far.
    """
    with existing(path).open("rb") as file:
        block = file.read(PLAIN_BLOCK)
        taken = len(block)
        if not block.startswith(GZIP):
            while block:
                progress(taken)
                yield block
                block = file.read(PLAIN_BLOCK)
                taken += len(block)
            return
        file.seek(0)
        taken, inflate, open_member = 0, zlib.decompressobj(wbits=31), True
        while block := file.read(GZIP_BLOCK):
            taken += len(block)
            progress(taken)
            while block:
                before = inflate.copy()
                try:
                    found = inflate.decompress(block)
                except zlib.error:
                    yield _salvaged(before, block)
                    defect(BROKEN, taken - len(block))
                    return
                if found:
                    yield found
                block, open_member = b"", True
                if inflate.eof:
                    block, open_member = inflate.unused_data.lstrip(b"\0"), False
                    inflate = zlib.decompressobj(wbits=31)
        if open_member:
            defect(CUT, taken)


def _salvaged(inflate: zlib._Decompress, block: bytes) -> bytes:
    """What a broken block of gzip gives before the place where it is broken."""
    found = []
    for place in range(0, len(block), 256):
        try:
            found.append(inflate.decompress(block[place : place + 256]))
        except zlib.error:
            break
    return b"".join(found)
