"""What the chunks of a stage keep from forward to backward."""

import math
from collections.abc import Callable
from typing import TypeVar

from moesim.base.numeric import Numeric
from moesim.cost.blocks import Blocks, PricedBlock, chunk_blocks
from moesim.cost.plan import Plan
from moesim.workload.layers import saved_bytes
from moesim.workload.splitting import waiting_bytes
from moesim.workload.stages import Stage

T = TypeVar("T")

LOGITS = ("logits",)


def stage_bytes(plan: Plan, blocks: Blocks, of_chunk: Callable[[list[PricedBlock], int], T]) -> tuple[T, ...]:
    """What `of_chunk` says of the blocks of each stage and its inputs that are not kept; alike ones are asked once."""

    def of_stage(stage: Stage) -> T:
        repeated = plan.recomputed_layers(stage)
        dropped = repeated - math.ceil(repeated / plan.segment(stage))
        return of_chunk(chunk_blocks(plan, stage, blocks), dropped)

    return plan.of_stages(of_stage)


def waiting(chunk: list[PricedBlock], _: int) -> Numeric:
    """Bytes that one micro-batch leaves for its weight gradients where the backward is split. [B]"""
    return sum((waiting_bytes(priced.block.backward) for priced in chunk), 0.0)


def kept(chunk: list[PricedBlock], dropped: int) -> tuple[Numeric, Numeric]:
    """Activation and logit bytes that one micro-batch leaves in a chunk, without `dropped` inputs of layers. [B]"""
    tensors = [saved for priced in chunk for saved in priced.block.saved]
    logits = sum((saved.num_bytes for saved in tensors if saved.name in LOGITS), 0.0)
    inputs = [saved_bytes(priced.block) for priced in chunk if priced.block.recompute]
    return sum((saved.num_bytes for saved in tensors), 0.0) - logits - sum(inputs[:dropped], 0.0), logits
