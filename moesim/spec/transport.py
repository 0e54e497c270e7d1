"""Constants of the expert all-to-all transports; their formulas are in `moesim.cost.transports`."""

from __future__ import annotations

from moesim.spec.provenance import Constant
from moesim.spec.validation import NamedSpec


class TransportSpec(NamedSpec):
    """Constants of one transport, by the names its formula asks for."""

    constants: dict[str, Constant]

    def value(self, name: str) -> float:
        """Return one constant. [SI]"""
        return self.constants[name].value
