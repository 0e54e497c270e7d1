"""Priced layers and chunks of a plan: each distinct layer is priced once."""

from dataclasses import dataclass

from moesim.cost.plan import Plan
from moesim.cost.price import launch_time, op_time
from moesim.cost.stage import Ops, PricedOp
from moesim.workload.embedding import embedding_block, head_block
from moesim.workload.layers import layer_block, recomputed
from moesim.workload.model import Layer
from moesim.workload.ops import Block, Op
from moesim.workload.stages import Stage

End = str
"""``embedding`` or ``head``: the ends of the model."""


@dataclass(frozen=True)
class PricedBlock:
    """A block with the time of each operation."""

    block: Block
    forward: Ops
    backward: Ops


Blocks = dict[Layer | End, PricedBlock]


def price_blocks(plan: Plan) -> Blocks:
    """Price every distinct layer of the model, and its two ends."""
    model, batch = plan.model, plan.batch
    passes = plan.transport.passes(plan.leg(), plan.machine.group(plan.mesh, "ep"))
    blocks: dict[Layer | End, Block] = {
        "embedding": embedding_block(model.hidden, batch),
        "head": head_block(model.hidden, model.vocab, batch),
    }
    for layer in dict.fromkeys(model.layers):
        blocks[layer] = recomputed(layer_block(layer, model.hidden, batch, passes), plan.recompute)
    return {name: _price(block, plan) for name, block in blocks.items()}


def _price(block: Block, plan: Plan) -> PricedBlock:
    def price(ops: tuple[Op, ...]) -> Ops:
        return tuple(
            PricedOp(op, op_time(op, plan.mesh, plan.machine, plan.transport), launch_time(op, plan.mesh, plan.machine))
            for op in ops
        )

    return PricedBlock(block, price(block.forward), price(block.recompute) + price(block.backward))


def chunk_blocks(plan: Plan, stage: Stage, blocks: Blocks) -> list[PricedBlock]:
    """Blocks of one chunk in the order of the forward."""
    chunk = [blocks[plan.model.layers[index]] for index in stage.layers]
    head = [blocks["head"]] if stage.loss else []
    return ([blocks["embedding"]] if stage.embedding else []) + chunk + head
