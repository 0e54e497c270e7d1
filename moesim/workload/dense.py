"""Feed-forwards that every token passes: the dense block of a layer, and shared experts beside routed ones."""

from dataclasses import dataclass

from moesim.workload.linear import FULL, Linear, TensorRegion, addition, traffic
from moesim.workload.model import Dense
from moesim.workload.ops import Block, Op, Saved
from moesim.workload.setting import Setting

LAYERNORM = frozenset({"layernorm", "full"})
MLP = frozenset({"mlp", "full"})
SHARED = frozenset({"shared_experts", "full"})


@dataclass(frozen=True)
class FeedForward:
    """Operations and saved tensors between the normed input and the output of a feed-forward.

    Of the forward the up-projection with the activation, then the down-projection; of the backward the down-projection,
    then the rest.
    """

    forwards: tuple[tuple[Op, ...], tuple[Op, ...]] = ((), ())
    backwards: tuple[tuple[Op, ...], tuple[Op, ...]] = ((), ())
    saved: tuple[Saved, ...] = ()

    @property
    def forward(self) -> tuple[Op, ...]:
        """All of the forward."""
        return sum(self.forwards, ())

    @property
    def backward(self) -> tuple[Op, ...]:
        """All of the backward."""
        return sum(self.backwards, ())


def feed_forward(
    dense: Dense, hidden: int, setting: Setting, name: str, segment: str, modules: frozenset[str]
) -> FeedForward:
    """Up-projection, activation, down-projection, split over the tensor-parallel group."""
    tp, tokens = setting.mesh.tp, setting.tokens
    inner = dense.ffn_size / tp
    wide = (2 if dense.gated else 1) * inner
    up = Linear(f"{name}-up", tokens, wide, hidden, setting, segment=segment, modules=modules)
    down = Linear(f"{name}-down", tokens, hidden, inner, setting, segment=segment, modules=modules)
    region = TensorRegion(name, 2 * tokens * hidden, setting, segment)
    kernels = 1 if setting.fusion.compiled else 2
    return FeedForward(
        forwards=(
            (
                *region.enter(up),
                traffic(f"{name}-activation", 2 * tokens * (wide + inner), kernels, segment, modules),
            ),
            tuple(region.leave(down)),
        ),
        backwards=(
            tuple(region.leave_backward(down)),
            (
                traffic(f"{name}-activation-backward", 2 * tokens * (2 * wide + inner), kernels, segment),
                *region.enter_backward(up),
            ),
        ),
        saved=(
            Saved(f"{name}-up-output", 2 * tokens * wide, modules),
            down.saved(f"{name}-activation-output", modules),
        ),
    )


def dense_block(dense: Dense, hidden: int, setting: Setting, norms: int = 1) -> Block:
    """One dense feed-forward block: norm, feed-forward, residual. Counts per rank and micro-batch."""
    row = 2 * setting.local_tokens * hidden
    made = feed_forward(dense, hidden, setting, "mlp", "attention", MLP)
    extra = norms == 2
    forward = (
        traffic("mlp-norm", 2 * row, modules=LAYERNORM),
        *made.forward,
        *((traffic("mlp-output-norm", 2 * row, modules=LAYERNORM),) if extra else ()),
        addition("mlp-residual", 3 * row),
    )
    backward = (
        addition("mlp-residual-backward", 2 * row),
        *((traffic("mlp-output-norm-backward", 4 * row, 2),) if extra else ()),
        *made.backward,
        traffic("mlp-norm-backward", 4 * row, 2),
    )
    saved = (
        Saved("mlp-input", row, FULL),
        Saved("mlp-norm-output", row * setting.recipe.saved_bytes / 2, LAYERNORM),
        *made.saved,
        *((Saved("before-mlp-output-norm", row, FULL),) if extra else ()),
    )
    return Block(forward, backward, saved)
