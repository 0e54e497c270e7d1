"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, text as UTF-8, beside its place and move it there when it is complete.

    A link is followed; what is no regular file (a pipe, a device) is written to as it is.
    """
    target, content = Path(path), content.encode() if isinstance(content, str) else content
    if target.exists() and not target.is_file():
        try:
            target.write_bytes(content)
        except OSError as error:
            error.filename = str(path)
            raise
        return
    target = target.resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
