"""The ranks of a job as two meshes that fold onto the same GPUs.

Attention mesh ``tp x cp x dp x pp`` and expert mesh ``etp x ep x edp x pp`` cover the same ranks; both keep the
pipeline outermost (Megatron-Core "parallel folding", order ``tp-cp-ep-dp-pp``).
"""

from dataclasses import dataclass

from moesim.base.numeric import Numeric

AXES = ("tp", "cp", "dp", "dp-cp", "pp", "etp", "ep", "edp")


@dataclass(frozen=True)
class Mesh:
    """Sizes of the parallel axes. [-]

    ``world`` is the number of GPUs; ``dp = world / (tp cp pp)`` and ``edp = world / (etp ep pp)`` are derived.
    """

    world: Numeric
    tp: Numeric
    cp: Numeric
    pp: Numeric
    etp: Numeric
    ep: Numeric

    @property
    def dp(self) -> Numeric:
        """Data-parallel replicas of the attention mesh. [-]"""
        return self.world / (self.tp * self.cp * self.pp)

    @property
    def edp(self) -> Numeric:
        """Replicas of each expert. [-]"""
        return self.world / (self.etp * self.ep * self.pp)

    def size(self, axis: str) -> Numeric:
        """Ranks in one group of the axis; ``dp-cp`` is the group over which dense gradients are reduced. [-]"""
        sizes = {
            "tp": self.tp,
            "cp": self.cp,
            "dp": self.dp,
            "dp-cp": self.dp * self.cp,
            "pp": self.pp,
            "etp": self.etp,
            "ep": self.ep,
            "edp": self.edp,
        }
        return sizes[axis]

    def stride(self, axis: str) -> Numeric:
        """Distance in global ranks between neighbours of a group of the axis. [-]"""
        strides = {
            "tp": 1.0,
            "cp": self.tp,
            "dp": self.tp * self.cp,
            "dp-cp": self.tp,
            "pp": self.tp * self.cp * self.dp,
            "etp": 1.0,
            "ep": self.etp,
            "edp": self.etp * self.ep,
        }
        return strides[axis]
