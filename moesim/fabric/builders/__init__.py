"""Kinds of topology, one a file; each registers an instance of `moesim.fabric.builder.Builder`."""

from moesim.base.registry import Registry
from moesim.fabric.builder import Builder

builders: Registry[Builder] = Registry("kind of fabric", package=__name__, entry_points="moesim.fabrics")
