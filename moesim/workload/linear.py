"""Matrix products of a layer with their casts, and the messages around a tensor-parallel region."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from moesim.base.numeric import Numeric
from moesim.workload.ops import Gemm, Message, Op, Saved, Traffic
from moesim.workload.setting import Setting

FULL = frozenset({"full"})


@dataclass(frozen=True)
class Linear:
    """``groups`` products y = x W with x of (m, k) and W of (k, n), and their two gradients.

    ``spread``: rows of each group over their mean m, where they differ; ``kind``: how the groups are multiplied, by
    ``kernels`` each time. The forward casts x (unless it was cast before, ``cast_input`` false), the backward casts dy once for dgrad and wgrad; the cast of x is kept for wgrad.
    """

    name: str
    m: Numeric
    n: Numeric
    k: Numeric
    setting: Setting
    groups: Numeric = 1
    category: str = "gemm"
    segment: str = "attention"
    modules: frozenset[str] = FULL
    low_precision: bool = True
    spread: NDArray[np.float64] | None = None
    kind: str = "grouped"
    kernels: Numeric = 1
    cast_input: bool = True

    @property
    def _rate(self) -> str:
        return self.setting.recipe.rate if self.low_precision else "bf16"

    def forward(self, needs: tuple[str, ...] = ()) -> tuple[Op, ...]:
        """Cast of the input where the recipe has one, then the product."""
        product = self._product(self.name, self.m, self.n, self.k)
        if not self.cast_input:
            return (replace(product, needs=needs),)
        return self._with_cast(self.name, self.m * self.k, product, needs)

    def dgrad(self, needs: tuple[str, ...] = ()) -> tuple[Op, ...]:
        """Cast of the output gradient, then the product with the transposed weights."""
        name = f"{self.name}-dgrad"
        return self._with_cast(name, self.m * self.n, self._product(name, self.m, self.k, self.n), needs)

    def wgrad(self, needs: tuple[str, ...] = (), input_share: Numeric = 1.0) -> tuple[Op, ...]:
        """Product of the saved input and the output gradient, added into an FP32 buffer.

        Both wait for it where the backward is split; of the input `input_share`, where the rest is gathered again. Experts
        whose weight gradient stays in BF16 bring both back first.
        """
        recipe = self.setting.recipe
        widened = self.category == "grouped_gemm" and self.setting.fusion.bf16_expert_wgrad and recipe.casts
        rate = (recipe.wgrad_rate or recipe.rate) if self.low_precision and not widened else "bf16"
        work = self._work(self.k, self.n, self.m, rate, accumulate=True)
        value = recipe.operand_bytes if widened else work.operand_bytes
        held = value * self.groups * self.m * (input_share * self.k + self.n)
        product = replace(self._op(f"{self.name}-wgrad", work, needs), held_bytes=held)
        if not widened:
            return (product,)
        brought = Traffic((recipe.operand_bytes + 2) * self.groups * self.m * (self.k + self.n), cast=True)
        name = f"{self.name}-wgrad-operands"
        back = Op(name, "memory_bound", brought, 2, self.segment, self.modules, needs, held_bytes=0.0)
        return (back, replace(product, needs=()))

    def backward(self, needs: tuple[str, ...] = ()) -> tuple[Op, ...]:
        """Both gradients, one after the other."""
        return self.dgrad(needs) + self.wgrad()

    def saved(self, name: str, modules: frozenset[str]) -> Saved:
        """The input, kept for wgrad."""
        value = self.setting.recipe.saved_bytes if self.low_precision else 2.0
        return Saved(name, value * self.groups * self.m * self.k, modules)

    def _product(self, name: str, m: Numeric, n: Numeric, k: Numeric) -> Op:
        return self._op(name, replace(self._work(m, n, k, self._rate), spread=self.spread))

    def _work(self, m: Numeric, n: Numeric, k: Numeric, rate: str, accumulate: bool = False) -> Gemm:
        operand = self.setting.recipe.operand_bytes if rate not in ("bf16", "fp16") else 2.0
        return Gemm(m, n, k, self.groups, accumulate, rate, operand, kind=self.kind)

    def _op(self, name: str, work: Gemm, needs: tuple[str, ...] = ()) -> Op:
        one_by_one = self.category == "grouped_gemm" and self.setting.fusion.product_each_expert
        calls = np.maximum(self.groups - 1, 0) if one_by_one and np.all(np.asarray(self.kernels) == 1) else 0
        return Op(name, self.category, work, self.kernels, self.segment, self.modules, needs, calls=calls)

    def _with_cast(self, name: str, values: Numeric, product: Op, needs: tuple[str, ...]) -> tuple[Op, ...]:
        recipe = self.setting.recipe
        if not (recipe.casts and self.low_precision):
            return (replace(product, needs=needs),)
        work = Traffic(recipe.cast_bytes * self.groups * values, cast=True)
        cast = Op(f"{name}-cast", "memory_bound", work, recipe.cast_kernels, self.segment, self.modules, needs)
        return (cast, product)


def traffic(
    name: str, num_bytes: Numeric, kernels: int = 1, segment: str = "attention", modules: frozenset[str] = FULL
) -> Op:
    """A memory-bound kernel."""
    return Op(name, "memory_bound", Traffic(num_bytes), kernels, segment, modules)


def addition(name: str, num_bytes: Numeric, segment: str = "attention") -> Op:
    """An addition to the residual stream."""
    return Op(name, "memory_bound", Traffic(num_bytes, plain=True), 1, segment, FULL)


@dataclass(frozen=True)
class TensorRegion:
    """Messages at the two ends of a tensor-parallel region of ``size`` bytes of hidden states.

    With sequence parallelism an all-gather enters and a reduce-scatter leaves (Korthikanti et al. 2022); without, an
    all-reduce leaves the forward and the backward each. The backward of the entry gathers the input again beside dgrad
    and reduces dx beside wgrad, as the linear layers of Megatron-Core and Transformer Engine do.
    """

    name: str
    size: Numeric
    setting: Setting
    segment: str = "attention"

    def enter(self, linear: Linear) -> tuple[Op, ...]:
        """Gather the input, then the first product; with ``overlap_tp`` the two run side by side."""
        product = linear.forward()
        if not self.setting.sequence_parallel:
            return product
        gather = self._message("all-gather", "enter", linear.modules)
        if not self.setting.overlap_tp:
            return (gather, *product)
        beside = (replace(product[0], beside=True), *product[1:])
        return (gather, *beside, self._joined("enter-join", (gather.name, product[-1].name), linear.modules))

    def leave(self, linear: Linear) -> tuple[Op, ...]:
        """The last product, then its sum over the group."""
        product = linear.forward()
        collective = "reduce-scatter" if self.setting.sequence_parallel else "all-reduce"
        message = self._message(collective, "leave", linear.modules)
        if not self.setting.overlap_tp:
            return (*product, message)
        join = self._joined("leave-join", (message.name, product[-1].name), linear.modules)
        return (*product, replace(message, beside=True), join)

    def leave_backward(self, linear: Linear) -> tuple[Op, ...]:
        """Gather the output gradient, then both gradients of the last product."""
        if not self.setting.sequence_parallel:
            return linear.backward()
        gather = self._message("all-gather", "leave-grad", FULL)
        product = linear.backward()
        if not self.setting.overlap_tp:
            return (gather, *product)
        beside = (replace(product[0], beside=True), *product[1:])
        return (gather, *beside, self._joined("leave-grad-join", (gather.name, product[-1].name), FULL))

    def enter_backward(self, linear: Linear) -> tuple[Op, ...]:
        """Both gradients of the first product, the messages beside them."""
        dgrad, wgrad = linear.dgrad(), linear.wgrad()
        if self.setting.sequence_parallel:
            again = replace(self._message("all-gather", "enter-again", FULL), held_bytes=0.0)
            reduce = replace(self._message("reduce-scatter", "enter-grad", FULL), needs=(dgrad[-1].name,))
            wgrad = linear.wgrad((again.name, dgrad[-1].name), 1.0 / self.setting.mesh.tp)
            first = (again, replace(dgrad[0], beside=True), *dgrad[1:])
        else:
            reduce = replace(self._message("all-reduce", "enter-grad", FULL), needs=(dgrad[-1].name,))
            wgrad = linear.wgrad((dgrad[-1].name,))
            first = dgrad
        return (*first, reduce, *wgrad, self._joined("enter-grad-join", (reduce.name, wgrad[-1].name), FULL))

    def _message(self, collective: str, end: str, modules: frozenset[str]) -> Op:
        work = Message(collective, "tp", self.size)
        return Op(f"{self.name}-{end}", "tp", work, segment=self.segment, modules=modules)

    def _joined(self, end: str, needs: tuple[str, ...], modules: frozenset[str]) -> Op:
        name = f"{self.name}-{end}"
        return Op(name, "memory_bound", Traffic(0.0), 0, self.segment, modules, needs)
