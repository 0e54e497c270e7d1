"""The ranks of a job as two meshes that fold onto the same GPUs.

Attention mesh ``tp x cp x dp x pp`` and expert mesh ``etp x ep x edp x pp`` cover the same ranks; both keep the
pipeline outermost (Megatron-Core "parallel folding", order ``tp-cp-ep-dp-pp``).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from moesim.base.numeric import Numeric

AXES = (
    "tp",
    "cp",
    "dp",
    "dp-cp",
    "pp",
    "etp",
    "ep",
    "edp",
    "dense-shard",
    "dense-replica",
    "routed-shard",
    "routed-replica",
)


@dataclass(frozen=True)
class Mesh:
    """Sizes of the parallel axes. [-]

    ``world`` is the number of GPUs; ``dp = world / (tp cp pp)`` and ``edp = world / (etp ep pp)`` are derived. Training
    state is split over ``dense-shard`` and ``routed-shard`` ranks: all replicas, or those among ``shard_span``
    neighbouring ranks (hybrid sharding), the same again on each ``*-replica``.
    """

    world: Numeric
    tp: Numeric
    cp: Numeric
    pp: Numeric
    etp: Numeric
    ep: Numeric
    shard_span: Numeric | None = None

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
        return self._sizes[axis]

    def stride(self, axis: str) -> Numeric:
        """Distance in global ranks between neighbours of a group of the axis. [-]"""
        return self._strides[axis]

    @cached_property
    def _sizes(self) -> dict[str, Numeric]:
        dense, routed = self._shard("dp-cp"), self._shard("edp")
        return {
            "tp": self.tp,
            "cp": self.cp,
            "dp": self.dp,
            "dp-cp": self.dp * self.cp,
            "pp": self.pp,
            "etp": self.etp,
            "ep": self.ep,
            "edp": self.edp,
            "dense-shard": dense,
            "routed-shard": routed,
            "dense-replica": self.dp * self.cp / dense,
            "routed-replica": self.edp / routed,
        }

    @cached_property
    def _strides(self) -> dict[str, Numeric]:
        dense, routed = self.tp, self.etp * self.ep
        return {
            "tp": 1.0,
            "cp": self.tp,
            "dp": self.tp * self.cp,
            "dp-cp": dense,
            "pp": self.tp * self.cp * self.dp,
            "etp": 1.0,
            "ep": self.etp,
            "edp": routed,
            "dense-shard": dense,
            "routed-shard": routed,
            "dense-replica": dense * self._shard("dp-cp"),
            "routed-replica": routed * self._shard("edp"),
        }

    def _shard(self, axis: str) -> Numeric:
        """Ranks over which the replicas of an axis split their state. [-]"""
        size = self.dp * self.cp if axis == "dp-cp" else self.edp
        if self.shard_span is None:
            return size
        stride = self.tp if axis == "dp-cp" else self.etp * self.ep
        return np.clip(np.floor(self.shard_span / stride), 1, size)
