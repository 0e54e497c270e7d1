"""Priced layers and chunks of a plan: each distinct layer is priced once."""

from dataclasses import dataclass

from moesim.base.numeric import Numeric
from moesim.cost.plan import Plan
from moesim.cost.price import launch_time, op_time
from moesim.cost.stage import Ops, PricedOp
from moesim.workload.embedding import embedding_block, head_block, mtp_block
from moesim.workload.gathering import sharded_block
from moesim.workload.layers import joined, layer_block, recomputed
from moesim.workload.model import Layer
from moesim.workload.ops import Block, Op
from moesim.workload.sharding import RankParams, embedding_params, head_params, layer_params, mtp_params
from moesim.workload.stages import Stage

Name = tuple[Layer, bool] | str
"""A layer, recomputed or not, or one of the ends of the model: ``embedding``, ``head``, ``mtp``."""


@dataclass(frozen=True)
class PricedBlock:
    """A block with its parameters on one rank and the time of each operation.

    ``whole`` is the block with nothing recomputed: its saved tensors come back while its backward runs.
    """

    block: Block
    whole: Block
    params: RankParams
    forward: Ops
    backward: Ops


Blocks = dict[Name, PricedBlock]


def price_blocks(plan: Plan) -> Blocks:
    """Price every distinct layer of the model, and its ends."""
    model, setting, mesh = plan.model, plan.setting, plan.mesh
    embedding = embedding_params(model, mesh, plan.sequence_length)
    head = head_params(model, mesh, own_embedding=len(plan.stages) == 1)
    found: Blocks = {
        "embedding": _priced(plan, embedding_block(model.hidden, setting), embedding),
        "head": _priced(plan, head_block(model.hidden, model.vocab, setting), head),
    }
    partly = any(plan.recomputed_layers(stage) < stage.num_layers for stage in plan.stages)
    for layer in dict.fromkeys(model.layers):
        block, params = layer_block(layer, model.hidden, setting), layer_params(layer, model.hidden, mesh)
        launches = plan.machine.runtime
        target = launches.launches_per_moe_layer if layer.moe else launches.launches_per_dense_layer
        found[layer, True] = _priced(plan, block, params, recompute=True, launches=target)
        if partly:
            found[layer, False] = _priced(plan, block, params, launches=target)
    if model.mtp_layers:
        last = layer_block(model.layers[-1], model.hidden, setting)
        module = joined(mtp_block(model.hidden, setting), last, head_block(model.hidden, model.vocab, setting))
        found["mtp"] = _priced(plan, module, mtp_params(model, mesh), recompute=True)
    return found


def _priced(
    plan: Plan, block: Block, params: RankParams, recompute: bool = False, launches: float | None = None
) -> PricedBlock:
    kernels = sum(float(op.kernels) for op in block.forward + block.backward)
    scale = launches / kernels if launches else 1.0
    kept = recomputed(block, plan.recompute) if recompute and plan.recompute else block
    split = sharded_block(kept, params, plan.state_types, plan.sharding, plan.strategy.reshard_after_forward)
    forward = _prices(split.forward, plan, scale)
    return PricedBlock(split, block, params, forward, _prices(split.recompute + split.backward, plan, scale))


def _prices(ops: tuple[Op, ...], plan: Plan, scale: Numeric) -> Ops:
    mesh, machine = plan.mesh, plan.machine
    return tuple(
        PricedOp(op, op_time(op, mesh, machine, plan.transport), scale * launch_time(op, mesh, machine)) for op in ops
    )


def chunk_blocks(plan: Plan, stage: Stage, blocks: Blocks) -> list[PricedBlock]:
    """Blocks of one chunk in the order of the forward."""
    repeated = plan.recomputed_layers(stage)
    chunk = [blocks["embedding"]] if stage.embedding else []
    chunk += [blocks[plan.model.layers[index], place < repeated] for place, index in enumerate(stage.layers)]
    chunk += [blocks["mtp"] for _ in range(stage.mtp)]
    return chunk + ([blocks["head"]] if stage.loss else [])
