"""Fabrics by name, and by name and oversubscription: ``fat-tree:2``."""

from __future__ import annotations

from moesim.base.errors import SpecError
from moesim.spec.fabric import FabricSpec
from moesim.spec.provenance import Number


def split_name(name: str) -> tuple[str, float | None]:
    """Return the fabric and the oversubscription at its leaves that ``NAME:O`` asks for; None without ``:O``.

    Examples
    --------
    >>> split_name("fat-tree:2"), split_name("rail-ndr400")
    (('fat-tree', 2.0), ('rail-ndr400', None))
    """
    plain, colon, ratio = name.rpartition(":")
    if not colon:
        return name, None
    try:
        value = float(ratio)
    except ValueError:
        value = 0.0
    if not 0 < value < 1000:
        raise SpecError.single("", "", f"'{ratio}' in '{name}' is not an oversubscription", f"write {plain}:2")
    return plain, value


def oversubscribed(fabric: FabricSpec, ratio: float | None) -> FabricSpec:
    """Return a fabric whose leaves have another oversubscription, named after it."""
    if ratio is None:
        return fabric
    changed = Number(value=ratio, kind="assumed", note="asked for beside the name")
    return fabric.model_copy(update={"oversubscription": changed, "name": f"{fabric.name}:{ratio:g}"})
