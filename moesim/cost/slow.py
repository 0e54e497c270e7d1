"""Pipeline ranks that something slows down."""

from dataclasses import dataclass, replace

from moesim.cost.machine import NVLINK_RATES, Machine
from moesim.fabric.network import Network


@dataclass(frozen=True)
class Slow:
    """Pipeline ranks that something slows down, and how.

    ``network``: with a fault; ``nvlink``, ``compute``: shares of their rates that NVLink and GPUs keep. [-]
    """

    ranks: tuple[int, ...]
    network: Network | None = None
    nvlink: float = 1.0
    compute: float = 1.0

    def machine(self, machine: Machine) -> Machine:
        """The machine as the slow ranks see it; memory keeps its bandwidth."""
        rates = {name: rate * self.compute for name, rate in machine.gpu.rates.items()}
        links = {name: getattr(machine.links, name) * self.nvlink for name in NVLINK_RATES}
        transports = {
            name: {
                key: value * (self.nvlink if key.endswith("nvlink_bandwidth") else 1) for key, value in items.items()
            }
            for name, items in machine.transports.items()
        }
        return replace(
            machine,
            transports=transports,
            gpu=replace(machine.gpu, rates=rates),
            links=replace(machine.links, **links),
            network=self.network or machine.network,
        )
