"""What happens to the routed rows of a layer between permute and unpermute: exchange, products, exchange back."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from moesim.base.numeric import Numeric
from moesim.workload.linear import Linear
from moesim.workload.model import Moe
from moesim.workload.ops import ExpertLeg, FusedExperts, Gemm, Message, Op, Saved, Traffic
from moesim.workload.setting import Setting

BIAS_BYTES, BIAS_BACKWARD_BYTES = 28.0, 40.0
"""Memory traffic of a weighted bias, a value of the output, where Megatron-Core writes it as a loop over slices. The weights
of the rows are FP32, and so is what they touch: product (writes 4), sum (reads 2 + 4, writes 4), slices put together (4, 4),
cast back (4, 2). Backward: cast (2, 4), cast of what goes on (4, 2), product with the weights and its sum over rows (4, 4, 4),
product with the bias and its sum over columns (4, 4, 4), slices put together (2, 2). [B]"""
MOE = frozenset({"moe", "full"})
ACTIVATION = frozenset({"moe_act", "moe", "full"})


def expert_rows(moe: Moe, setting: Setting) -> Numeric:
    """Token rows that the local experts of the slowest rank process. [-]"""
    return setting.local_tokens * moe.top_k * setting.mesh.etp * setting.routed_load


def expert_leg(
    moe: Moe, hidden: int, setting: Setting, direction: str = "dispatch", forward: bool = False
) -> ExpertLeg:
    """One leg of the expert exchange; the dispatch of the `forward` may travel cast, and by some transports every leg."""
    row = setting.recipe.row_bytes if direction == "dispatch" else 2.0
    if (forward and setting.products.low_dispatch) or setting.products.low_legs:
        row = setting.recipe.operand_bytes
    return ExpertLeg(
        direction,
        setting.local_tokens,
        moe.top_k,
        moe.num_experts,
        row * hidden,
        load=setting.exchanged_load,
        node_limit=setting.node_limit,
        groups=moe.groups,
        token_groups=moe.token_groups,
        return_bytes=2.0 * hidden,
    )


@dataclass(frozen=True)
class Routed:
    """The routed rows of one micro-batch on the slowest rank, or a wave of them.

    Attributes
    ----------
    moe, hidden, setting
        Experts, width, and how the layer is run.
    share, suffix
        Part of the rows that this wave is, and what its operations are called by behind their names.
    """

    moe: Moe
    hidden: int
    setting: Setting
    share: float = 1.0
    suffix: str = ""

    def waves(self) -> tuple["Routed", ...]:
        """Equal parts of the rows; the whole where there is one wave."""
        count = self.setting.products.waves
        if count == 1:
            return (self,)
        return tuple(replace(self, share=1 / count, suffix=f" {wave}") for wave in range(1, count + 1))

    @property
    def rows(self) -> Numeric:
        """Rows that come in. [-]"""
        return expert_rows(self.moe, self.setting) * self.share

    @property
    def experts(self) -> Numeric:
        """Experts at work on the rank. [-]"""
        skew = self.setting.skew
        return skew.groups if skew else self.moe.num_experts / self.setting.mesh.ep

    @property
    def executed(self) -> Numeric:
        """Rows that the products run over: filled up to the padding where there is one. [-]"""
        padding = self.setting.products.padding
        if padding is None:
            return self.rows
        even = self.setting.local_tokens * self.moe.top_k * self.setting.mesh.etp * self.share
        return np.maximum(self.rows, padding * even)

    @property
    def inner(self) -> Numeric:
        """Width of an expert on this rank. [-]"""
        return self.moe.ffn_size / self.setting.mesh.etp

    @property
    def wide(self) -> Numeric:
        """Width of the up-projection on this rank, gate included. [-]"""
        return (2 if self.moe.gated else 1) * self.inner

    @cached_property
    def up(self) -> Linear:
        """Up-projection of all experts."""
        return self._linear("expert-up", self.wide, self.hidden, cast_input=not self.setting.products.low_dispatch)

    @cached_property
    def down(self) -> Linear:
        """Down-projection of all experts."""
        return self._linear("expert-down", self.hidden, self.inner)

    def _linear(self, name: str, n: Numeric, k: Numeric, cast_input: bool = True) -> Linear:
        products, skew = self.setting.products, self.setting.skew
        return Linear(
            name + self.suffix,
            self.executed / self.experts,
            n,
            k,
            self.setting,
            self.experts,
            "grouped_gemm",
            "experts",
            MOE,
            spread=skew.spread if skew and products.padding is None else None,
            kind=products.kind,
            kernels=self.experts if products.kernel_each else 1,
            cast_input=cast_input,
        )

    def leg(self, direction: str, name: str) -> Op:
        """One leg of the exchange; the first dispatch of the forward tells the counts."""
        counts = name == "dispatch" and self.suffix in ("", FIRST)
        work = expert_leg(self.moe, self.hidden, self.setting, direction, name == "dispatch")
        weighted = name == "combine-backward" and self.setting.fusion.weights_in_combine
        work = replace(work, tokens=work.tokens * self.share, counts=counts, weighted=weighted)
        segment = "dispatch" if name.startswith("dispatch") else "combine"
        waits = counts and self.setting.passes.host_syncs > 0
        return Op(name + self.suffix, "ep", work, 3, segment, MOE, host_sync=waits)

    def layout(self, name: str, copies: Numeric, segment: str) -> Op:
        """A pass over the rows that brings them into another order."""
        copy = 2 * self.setting.local_tokens * self.hidden * self.share
        kernels = 2.0 * np.greater(copies, 0)
        work = Traffic(copies * copy * self.setting.routed_load)
        return Op(name + self.suffix, "memory_bound", work, kernels, segment, MOE)

    def forward(self) -> tuple[Op, ...]:
        """From the rows that arrived to those that leave."""
        passes = self.setting.passes
        sort = self.layout("sort-by-expert", passes.after_dispatch, "experts")
        waits = self.setting.products.host_counts and passes.host_syncs == 0 and self.suffix in ("", FIRST)
        return (
            replace(sort, host_sync=waits),
            self._etp("expert-all-gather", "all-gather"),
            *self._padding("pad-experts"),
            *self.up.forward(),
            self._activation("expert-activation", 2 * (self.wide + self.inner), ACTIVATION),
            *self.down.forward(),
            *self._bias("expert-bias", BIAS_BYTES, 2, 2),
            *self._padding("unpad-experts"),
            self._etp("expert-reduce-scatter", "reduce-scatter"),
            self.layout("unsort", passes.before_combine, "experts"),
        )

    def backward(self, later: bool = False) -> tuple[Op, ...]:
        """From the gradients that arrived to those that leave; weight gradients are left out where they come `later`."""
        passes = self.setting.passes

        def both(linear: Linear) -> tuple[Op, ...]:
            return linear.dgrad() if later else linear.backward()

        return (
            self.layout("unsort-backward", passes.before_combine, "experts"),
            self._etp("expert-grad-all-gather", "all-gather"),
            *self._padding("unpad-experts-backward"),
            *self._bias("expert-bias-backward", BIAS_BACKWARD_BYTES, 3, 5),
            *both(self.down),
            self._activation("expert-activation-backward", 2 * (2 * self.wide + self.inner), frozenset()),
            *both(self.up),
            *self._padding("pad-experts-backward"),
            self._etp("expert-grad-reduce-scatter", "reduce-scatter"),
            self.layout("sort-by-expert-backward", passes.after_dispatch, "experts"),
        )

    def weight_gradients(self) -> tuple[Op, ...]:
        """Weight gradients of both projections."""
        return self.down.wgrad() + self.up.wgrad()

    def fused(self, name: str, legs: tuple[Op, Op], products: tuple[Op, Op]) -> Op:
        """Legs and products as one kernel."""
        dispatch, combine = (leg.work for leg in legs)
        assert isinstance(dispatch, ExpertLeg)
        assert isinstance(combine, ExpertLeg)
        gemms = tuple(op.work for op in products if isinstance(op.work, Gemm))
        return Op(name, "grouped_gemm", FusedExperts(dispatch, combine, gemms), 1, "experts", MOE)

    def saved(self) -> tuple[Saved, ...]:
        """Rows that are kept for the backward; buffers of a fixed size keep their spare rows."""
        slack, rows = self.setting.products.slack, self.executed
        outputs = self.setting.fusion.weights_in_combine
        tensors = (
            self.up.saved("dispatched-rows", MOE),
            Saved("expert-up-output", 2 * rows * self.wide, MOE),
            self.down.saved("expert-activation-output", ACTIVATION),
            Saved("row-probs", 4 * rows, MOE),
            *((Saved("expert-output", 2 * rows * self.hidden, MOE),) if outputs else ()),
        )
        return tuple(replace(saved, num_bytes=saved.num_bytes * slack) for saved in tensors)

    def _activation(self, name: str, row_bytes: Numeric, modules: frozenset[str]) -> Op:
        work = Traffic(self.executed * row_bytes)
        return Op(name + self.suffix, "memory_bound", work, 2, "experts", modules)

    def _etp(self, name: str, collective: str) -> Op:
        work = Message(collective, "etp", 2 * self.hidden * self.rows)
        return Op(name + self.suffix, "tp", work, 1, "experts", MOE)

    def _bias(self, name: str, value_bytes: float, kernels: int, calls: int) -> tuple[Op, ...]:
        """The bias of the down-projection, times the weight of its row: slice by slice, a few launches for each expert.

        A compiler would join it. The bias of the up-projection is added by the product itself.
        """
        if not self.moe.bias or self.setting.fusion.compiled:
            return ()
        work = Traffic(value_bytes * self.executed * self.hidden)
        return (Op(name + self.suffix, "memory_bound", work, kernels, "experts", MOE, calls=calls * self.experts),)

    def _padding(self, name: str) -> tuple[Op, ...]:
        """A copy between rows and slots of a fixed number."""
        if self.setting.products.padding is None:
            return ()
        work = Traffic(2 * self.hidden * (self.rows + self.executed))
        return (Op(name + self.suffix, "memory_bound", work, 1, "experts", MOE),)


FIRST = " 1"
"""Suffix of the first wave."""
