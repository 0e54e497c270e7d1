"""A model with frozen weights and adapters: what is trained, what a block then runs, keeps and counts."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from moesim.base.numeric import Numeric
from moesim.workload.adapters import Adapter
from moesim.workload.linear import FULL, traffic
from moesim.workload.matrices import ROWS, WHOLE, Matrix, layer_matrices
from moesim.workload.mesh import Mesh
from moesim.workload.model import Layer, Model
from moesim.workload.ops import Block, Gemm, Op, Saved, Traffic
from moesim.workload.sharding import RankParams
from moesim.workload.stages import Stage

ATTENTION = frozenset({"qkv", "query", "query-down", "kv-down", "kv-up", "projection"})
INPUTS = {
    "input-norm-output": {"qkv", "query", "query-down", "kv-down"},
    "query-latent-normed": {"query"},
    "kv-latent-normed": {"kv-up"},
    "mlp-norm-output": {"mlp-up"},
    "mlp-activation-output": {"mlp-down"},
    "dispatched-rows": {"expert-up"},
    "expert-activation-output": {"expert-down"},
    "expert-norm-output": {"shared-up"},
    "shared-activation-output": {"shared-down"},
    "head-input": set(),
    "mtp-projection-input": set(),
}
"""Tensors that are kept for weight gradients alone, and the products that they are the input of."""


DEQUANTISE = "-dequantise"
"""End of the name of an operation that brings weights back to BF16."""
Rewrite = Callable[[Op], Iterator[Op]]
"""What stands in the place of an operation."""


@dataclass(frozen=True)
class Adapting:
    """An adapter of a rank, beside the matrices that it is meant for."""

    adapter: Adapter
    rank: int
    targets: str = "attention"

    def widened_bytes(self, op: Op) -> Numeric:
        """Weights in BF16 that one such operation makes. [B]"""
        return 2.0 * op.work.hbm_bytes / (2.0 + (self.adapter.frozen_bytes or 0.0))

    def chosen(self, layer: Layer, hidden: int) -> tuple[Matrix, ...]:
        """Matrices of a layer that an adapter stands beside."""
        if not self.adapter.beside:
            return ()
        names = ATTENTION if self.targets == "attention" else None
        matrices = layer_matrices(layer, hidden)
        return tuple(m for m in matrices if m.linear != "router" and (names is None or m.linear in names))

    def model_params(self, model: Model) -> int:
        """Trained parameters of the whole model. [-]"""
        return sum(self._layer(layer, model.hidden) for layer in model.layers)

    def active_params(self, model: Model) -> float:
        """Trained parameters that one token meets. [-]"""
        total = 0.0
        for layer in model.layers:
            share = layer.moe.top_k / layer.moe.num_experts if layer.moe else 0.0
            routed = self._layer(layer, model.hidden, routed=True)
            total += self._layer(layer, model.hidden) - routed + share * routed
        return total

    def _layer(self, layer: Layer, hidden: int, routed: bool = False) -> int:
        pairs = (m for m in self.chosen(layer, hidden) if m.routed or not routed)
        beside = sum(self.rank * (m.inputs + m.outputs) * m.count for m in pairs)
        return beside if self.adapter.beside or routed else 2 * self.rank * hidden

    def stage_params(self, model: Model, stage: Stage, mesh: Mesh) -> RankParams:
        """Trained parameters of a stage on one rank: the side of a pair that the matrix splits is split too."""
        layers = (self.layer_params(model.layers[index], model.hidden, mesh) for index in stage.layers)
        return sum(layers, RankParams())

    def layer_params(self, layer: Layer, hidden: int, mesh: Mesh) -> RankParams:
        """Trained parameters of a layer on one rank."""
        if not self.adapter.beside:
            return RankParams(2.0 * self.rank * hidden)
        dense: Numeric = 0.0
        routed: Numeric = 0.0
        for matrix in self.chosen(layer, hidden):
            split = mesh.etp if matrix.routed else mesh.tp
            rows = matrix.inputs / split if matrix.split == ROWS else matrix.inputs
            columns = matrix.outputs if matrix.split in (ROWS, WHOLE) else matrix.outputs / split
            params = self.rank * matrix.count * (rows + columns)
            dense, routed = (dense, routed + params / mesh.ep) if matrix.routed else (dense + params, routed)
        return RankParams(dense, routed)

    def flop_per_token(self, model: Model, whole: float) -> float:
        """Model FLOPs of one token: `whole` without the weight gradients of what is frozen, with the adapters. [FLOP]"""
        matrices = sum(layer.active_matrix_params(model.hidden) for layer in model.layers)
        head = model.hidden * model.vocab
        module = model.layers[-1].active_matrix_params(model.hidden) + head + 2 * model.hidden**2
        return whole - 2.0 * (matrices + head + model.mtp_layers * module) + 6.0 * self.active_params(model)


def frozen_block(block: Block) -> Block:
    """A block without adapters of its own: no weight gradient is left, nor what was kept for one."""
    return _rewritten(block, {}, lambda op: iter((op,)))


def adapted_block(block: Block, layer: Layer, hidden: int, tokens: Numeric, adapting: Adapting) -> Block:
    """A layer with frozen weights and its adapters.

    `tokens` between tensor-parallel regions on one rank. [-]
    """
    pairs: dict[str, int] = {}
    for matrix in adapting.chosen(layer, hidden):
        experts = layer.moe.num_experts if matrix.routed and layer.moe else 1
        pairs[matrix.linear] = pairs.get(matrix.linear, 0) + matrix.count // experts
    quantised = adapting.adapter.frozen_bytes
    names = {matrix.linear for matrix in layer_matrices(layer, hidden)} if quantised is not None else set()

    def rewrite(op: Op) -> Iterator[Op]:
        base = op.name.removesuffix("-dgrad").removesuffix("-wgrad")
        if base in names and op.held_bytes is None:
            yield _dequantised(op, quantised or 0.0)
            op = replace(op, needs=(), beside=False)
        if base not in pairs:
            yield op
            return
        pair = _Pair(base, pairs[base] * adapting.rank, adapting.rank)
        if op.held_bytes is not None:
            yield from pair.wgrad(op)
            return
        yield op
        yield from pair.dgrad(op) if op.name.endswith("-dgrad") else pair.forward(op)

    made = _rewritten(block, pairs, rewrite)
    inner = tuple(_kept(op, pairs, adapting.rank) for op in block.forward if op.name in pairs)
    made = replace(made, saved=made.saved + inner)
    return made if adapting.adapter.beside else _with_bottleneck(made, hidden, tokens, adapting.rank)


def _rewritten(block: Block, pairs: Mapping[str, int], rewrite: Rewrite) -> Block:
    forward = tuple(new for op in block.forward for new in rewrite(op))
    stands_for: dict[str, tuple[str, ...]] = {}
    backward: list[Op] = []
    before: tuple[str, ...] = ()
    for op in block.backward:
        if _frozen(op, pairs):
            stands_for[op.name] = _names(op.needs, stands_for) or before
            continue
        made = list(rewrite(replace(op, needs=_names(op.needs, stands_for))))
        if len(made) > 1:
            stands_for[op.name] = (made[-1].name,)
        backward.extend(made)
        before = (made[-1].name,)
    saved = tuple(one for one in block.saved if not (one.name in INPUTS and INPUTS[one.name].isdisjoint(pairs)))
    return replace(block, forward=forward, backward=tuple(backward), saved=saved)


def _frozen(op: Op, pairs: Mapping[str, int]) -> bool:
    """Whether an operation of the backward serves the gradient of frozen weights only."""
    if op.name.startswith("embedding"):
        return True
    if op.held_bytes is None:
        return False
    region = op.name.removesuffix("-enter-again")
    linear = f"{region}-up" if region in ("mlp", "shared") else region.removesuffix("-wgrad")
    return linear not in pairs


def _names(needs: tuple[str, ...], stands_for: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    found = [other for name in needs for other in stands_for.get(name, (name,))]
    return tuple(dict.fromkeys(found))


def _gemm(op: Op) -> Gemm:
    assert isinstance(op.work, Gemm), "weights stand in products"
    return op.work


def _dequantised(op: Op, value_bytes: float) -> Op:
    """Weights of a product brought back to BF16 before it runs."""
    work = _gemm(op)
    num_bytes = (value_bytes + 2) * work.groups * work.n * work.k
    work_done = Traffic(num_bytes, cast=True)
    return replace(op, name=op.name + DEQUANTISE, category="memory_bound", work=work_done, kernels=1)


def _product(op: Op, name: str, m: Numeric, n: Numeric, k: Numeric, accumulate: bool = False) -> Op:
    work = _gemm(op)
    return replace(op, name=name, work=Gemm(m, n, k, work.groups, accumulate), needs=(), beside=False)


def _sum(op: Op, name: str) -> Op:
    """The result of a pair added to that of its matrix: two reads and a write."""
    work = _gemm(op)
    num_bytes = 6 * work.groups * work.m * work.n
    return replace(traffic(name, num_bytes, 1, op.segment, op.modules), scope=op.scope)


@dataclass(frozen=True)
class _Pair:
    """The pairs beside one product: all first matrices are of `width` together, each second one takes `rank`."""

    name: str
    width: int
    rank: int

    def forward(self, op: Op) -> Iterator[Op]:
        work = _gemm(op)
        yield _product(op, f"{self.name}-adapter-down", work.m, self.width, work.k)
        yield _product(op, f"{self.name}-adapter-up", work.m, work.n, self.rank)
        yield _sum(op, f"{self.name}-adapter-sum")

    def dgrad(self, op: Op) -> Iterator[Op]:
        work = _gemm(op)
        yield _product(op, f"{self.name}-adapter-up-dgrad", work.m, self.rank, work.k)
        yield _product(op, f"{self.name}-adapter-down-dgrad", work.m, work.n, self.width)
        yield _sum(op, f"{self.name}-adapter-sum-backward")

    def wgrad(self, op: Op) -> Iterator[Op]:
        """Gradients of both matrices; the wgrad of the frozen one has the shape (k, n, m)."""
        if not isinstance(op.work, Gemm):
            yield op  # the input gathered again
            return
        work = op.work
        held = 2.0 * work.groups * work.k
        up = _product(op, f"{self.name}-adapter-up-wgrad", self.rank, work.n, work.k, accumulate=True)
        yield replace(up, needs=op.needs, held_bytes=held * (self.width + work.n))
        down = _product(op, f"{self.name}-adapter-down-wgrad", work.m, self.width, work.k, accumulate=True)
        yield replace(down, held_bytes=held * (self.width + work.m))


def _kept(op: Op, pairs: Mapping[str, int], rank: int) -> Saved:
    work = _gemm(op)
    return Saved(f"{op.name}-adapter-inner", 2.0 * work.groups * work.m * pairs[op.name] * rank, op.modules)


def _with_bottleneck(block: Block, hidden: int, tokens: Numeric, rank: int) -> Block:
    row, inner = 2 * tokens * hidden, 2 * tokens * rank

    def product(name: str, m: Numeric, n: Numeric, k: Numeric, held: Numeric | None = None) -> Op:
        work = Gemm(m, n, k, accumulate=held is not None)
        return Op(name, "gemm", work, segment=segment, modules=FULL, held_bytes=held)

    segment = block.forward[-1].segment
    forward = (
        product("bottleneck-down", tokens, rank, hidden),
        traffic("bottleneck-activation", 2 * inner, 1, segment),
        product("bottleneck-up", tokens, hidden, rank),
        traffic("bottleneck-sum", 3 * row, 1, segment),
    )
    backward = (
        product("bottleneck-up-dgrad", tokens, rank, hidden),
        product("bottleneck-up-wgrad", rank, hidden, tokens, inner + row),
        traffic("bottleneck-activation-backward", 3 * inner, 1, segment),
        product("bottleneck-down-dgrad", tokens, hidden, rank),
        product("bottleneck-down-wgrad", hidden, rank, tokens, inner + row),
        traffic("bottleneck-sum-backward", 3 * row, 1, segment),
    )
    saved = (Saved("bottleneck-input", row, FULL), Saved("bottleneck-inner", 2 * inner, FULL))
    return replace(
        block, forward=block.forward + forward, backward=backward + block.backward, saved=block.saved + saved
    )
