"""Operations that eager PyTorch runs operator by operator: each reads and writes memory, norms and rotation in FP32.

A unit is one BF16 copy of what the operation works on; a cast to FP32 reads one and writes two. What one kernel would
do is counted by the blocks, so the chains are factors of it.
"""

from __future__ import annotations

from dataclasses import replace

from moesim.workload.ops import Block, Op, Saved, Traffic

NORM = 18 / 2
"""RMSNorm forward: cast 3, square 4, mean 2, scale 4, cast back 3, weight 2; one kernel: 2 units. [-]"""
NORM_BACKWARD = 38 / 4
"""Weight and its gradient 6, cast 3, scale 4, mean 8, square 8, both paths 6, cast back 3; one kernel: 4 units. [-]"""
ROPE = 10 / 2
"""Rotation as complex numbers, either way: cast 3, product 4, cast back 3; one kernel: 2 units. [-]"""
GATED = 5 / 3
"""Activation 2 and product with the gate 3; one kernel: 3 units. [-]"""
GATED_BACKWARD = 9 / 5
"""Gradients of both factors 6, of the activation 3; one kernel: 5 units. [-]"""

TRAFFIC = {
    "norm": NORM,
    "norm-backward": NORM_BACKWARD,
    "rope": ROPE,
    "rope-backward": ROPE,
    "activation": GATED,
    "activation-backward": GATED_BACKWARD,
}
"""How much more memory traffic than one kernel, by the end of the operation's name. [-]"""
SAVED = {"norm-output": 3.0, "activation-output": 2.0}
"""What autograd keeps over what one kernel keeps: a norm's FP32 copy, the activation beside its product. [-]"""


def operator_by_operator(block: Block) -> Block:
    """The block with its norms, rotary embedding and gated activations as chains of operators.

    References
    ----------
    pytorch-rms-norm (the operators of a norm), torchtitan (``apply_rotary_emb``, ``F.silu(w1(x)) * w3(x)``)
    """
    return replace(
        block,
        forward=tuple(map(_chain, block.forward)),
        backward=tuple(map(_chain, block.backward)),
        saved=tuple(map(_kept, block.saved)),
    )


def _chain(op: Op) -> Op:
    factor = _factor(TRAFFIC, op.name)
    if factor == 1 or not isinstance(op.work, Traffic):
        return op
    return replace(op, work=replace(op.work, hbm_bytes=factor * op.work.hbm_bytes))


def _kept(saved: Saved) -> Saved:
    return replace(saved, num_bytes=_factor(SAVED, saved.name) * saved.num_bytes)


def _factor(factors: dict[str, float], name: str) -> float:
    return next((factor for end, factor in factors.items() if name == end or name.endswith(f"-{end}")), 1.0)
