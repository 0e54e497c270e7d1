"""A plan: a strategy resolved against a model and a machine, ready to be priced."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.machine import Machine
from moesim.cost.transports import Transport, transports
from moesim.timeline.schedule import Schedule
from moesim.timeline.schedules import schedules
from moesim.workload.batch import MicroBatch
from moesim.workload.mesh import Mesh
from moesim.workload.model import Model
from moesim.workload.ops import ExpertLeg
from moesim.workload.recompute import RecomputePolicy, policies
from moesim.workload.sharding import RankParams, StateTypes, stage_params
from moesim.workload.stages import Stage
from moesim.workload.strategy import DTYPE_BYTES, Strategy


@dataclass(frozen=True)
class Plan:
    """One run (or a batch of runs that share pipeline shape and methods), with all names resolved.

    ``shape`` is the shape of the columns: degrees and machine constants may be arrays of it.
    """

    model: Model
    machine: Machine
    strategy: Strategy
    stages: tuple[Stage, ...]
    sequence_length: int
    num_micro_batches: int
    extra_warmup: int = 0
    shape: tuple[int, ...] = ()

    @cached_property
    def mesh(self) -> Mesh:
        """Parallel degrees and derived sizes."""
        strategy = self.strategy
        return Mesh(self.machine.num_gpus, strategy.tp, strategy.cp, strategy.pp, strategy.etp, strategy.ep)

    @cached_property
    def batch(self) -> MicroBatch:
        """Tokens of one micro-batch."""
        return MicroBatch(self.strategy.micro_batch, self.sequence_length, self.mesh)

    @property
    def transport(self) -> Transport:
        """Expert transport, by its name."""
        return transports.get(self.strategy.transport)

    @property
    def schedule(self) -> Schedule:
        """Pipeline schedule, by its name."""
        return schedules.get(self.strategy.schedule)

    @property
    def recompute(self) -> tuple[RecomputePolicy, ...]:
        """Recompute policies, by their names."""
        return tuple(policies.get(name) for name in self.strategy.recompute)

    @property
    def sharded_optimizer(self) -> bool:
        """Whether main weights and moments are sharded over the replicas."""
        return self.strategy.dp_sharding == "zero1"

    @property
    def state_types(self) -> StateTypes:
        """Bytes of a value of each kind of training state."""
        strategy = self.strategy
        names = (strategy.param_dtype, strategy.grad_dtype, strategy.optimizer_state_dtype)
        return StateTypes(*(DTYPE_BYTES[name] for name in names))

    @cached_property
    def params(self) -> tuple[RankParams, ...]:
        """Parameters of each stage on one of its ranks."""
        distinct: dict[tuple[object, ...], RankParams] = {}
        found = []
        for stage in self.stages:
            key = composition(self.model, stage)
            if key not in distinct:
                distinct[key] = stage_params(self.model, stage, self.mesh)
            found.append(distinct[key])
        return tuple(found)

    def leg(self) -> ExpertLeg:
        """The dispatch of the routed layers (all alike)."""
        moe = self.model.layers[-1].moe
        return ExpertLeg("dispatch", self.batch.local_tokens, moe.top_k, moe.num_experts, 2 * self.model.hidden)

    def boundary_crosses_nodes(self, stage: int) -> Numeric:
        """1.0 where stage and the next one sit on ranks of different NVLink domains, else 0.0."""
        ranks = self.schedule.stage_rank(self.strategy.pp, self.strategy.vpp)
        stride = self.mesh.stride("pp")
        here, there = (np.floor(ranks[index] * stride / self.machine.nvlink_domain) for index in (stage, stage + 1))
        return np.asarray(here != there, dtype=float)


def composition(model: Model, stage: Stage) -> tuple[object, ...]:
    """What makes two stages alike: their layers, and which ends of the model they hold."""
    return (tuple(model.layers[index] for index in stage.layers), stage.embedding, stage.loss)
