"""How a layer is run on one rank: tokens, parallel degrees, and the methods that change its operations."""

from dataclasses import dataclass, field, replace

from moesim.base.numeric import Numeric
from moesim.workload.documents import Documents
from moesim.workload.loads import Skew
from moesim.workload.mesh import Mesh
from moesim.workload.model import mean_columns
from moesim.workload.precision import Recipe


@dataclass(frozen=True)
class Fusion:
    """What the software fuses.

    Attributes
    ----------
    cross_entropy
        One kernel pair for the loss; the logits' gradient is written in place.
    logits_bytes
        Bytes per logit held while the loss runs: 2 fused in BF16, 2 + 4 with an FP32 softmax, 4 + 4 with FP32 logits.
    parallel_logits_bytes
        The same where tensor-parallel ranks share the vocabulary; None where it is the same loss.
    compiled
        A compiler joins chains of memory-bound kernels: norm, residual, activation and rotary embedding are each
        one pass, and the rotated query and key are not kept beside the QKV output.
    operators
        Norms, rotary embedding and gated activations run operator by operator.
    latent_value_views
        Values of latent attention are views of the up-projection, which stays whole; else contiguous copies.
    weights_in_combine
        Router weights multiply the experts' outputs on the way back instead of their activations, so the outputs are
        kept for the gradient of the weights.
    bf16_expert_wgrad
        Weight gradients of routed experts are multiplied in BF16 under every recipe.
    product_each_expert
        A library multiplies expert by expert on parallel streams, so the host launches a product for each.
    attention
        ``fused``: one kernel as calibrated; ``latest``: one of 2026, and ``fp8`` in FP8; ``flash1``, ``flash2``: FlashAttention;
        ``unfused``: scores go through memory.
    """

    cross_entropy: bool = False
    logits_bytes: float = 6.0
    parallel_logits_bytes: float | None = None
    compiled: bool = False
    operators: bool = False
    latent_value_views: bool = False
    weights_in_combine: bool = False
    bf16_expert_wgrad: bool = False
    product_each_expert: bool = False
    attention: str = "fused"


@dataclass(frozen=True)
class LayoutPasses:
    """HBM passes that an expert transport makes around its legs, in token copies.

    One copy reads or writes ``local_tokens x hidden`` values. ``before_dispatch`` and ``after_dispatch`` bring rows
    into wire order and into expert order; the combine side reverses them. ``host_syncs`` counts the times per dispatch
    that the host waits for the row counts.
    """

    before_dispatch: Numeric = 0.0
    after_dispatch: Numeric = 0.0
    before_combine: Numeric = 0.0
    after_combine: Numeric = 0.0
    host_syncs: int = 0


@dataclass(frozen=True)
class ExpertProducts:
    """How the products of the experts are made, and what stands around them.

    Attributes
    ----------
    kind
        Name of the kind of product.
    kernel_each, host_counts
        One kernel for each expert; the host waits for the row counts, if the exchange did not already.
    padding
        Rows of each expert over the mean, filled or not; None for as many as there are. [-]
    slack
        Rows that buffers hold over those at work: 1 where they are made to measure. [-]
    low_dispatch
        Tokens are cast before the dispatch and travel in the recipe's format.
    low_legs
        Rows travel in the recipe's format on every leg: outputs and gradients are cast before they leave.
    fused_forward, fused_backward
        One persistent kernel exchanges and multiplies, in the forward, and for the input gradients in the backward.
    waves
        Parts of the routed rows, of which one is exchanged while another is multiplied. [-]
    delay_wgrad
        Weight gradients run beside the exchange that follows the input gradients.
    """

    kind: str = "grouped"
    kernel_each: bool = False
    host_counts: bool = False
    padding: float | None = None
    slack: Numeric = 1.0
    low_dispatch: bool = False
    low_legs: bool = False
    fused_forward: bool = False
    fused_backward: bool = False
    waves: int = 1
    delay_wgrad: bool = False


@dataclass(frozen=True)
class Setting:
    """One micro-batch on one rank.

    Attributes
    ----------
    sequences
        Sequences in the micro-batch, b. [-]
    sequence_length
        Tokens of a sequence, s. [-]
    mesh
        Parallel degrees.
    recipe
        Precision of the GEMMs.
    sequence_parallel
        Activations between tensor-parallel regions are split over the sequence.
    cp_kind
        ``ring``: keys and values travel around the context-parallel group; ``ulysses``: heads are exchanged.
    overlap_tp, overlap_shared_expert
        Tensor-parallel messages run beside their GEMM; shared experts run beside the expert exchange.
    routed_load
        Rows of the hottest rank over the mean, and over the capacity's padding: what the slowest rank executes. [-]
    skew
        How the rows of the slowest rank spread over its experts, and what of them is exchanged; None where all are alike.
    replicated, node_limit
        Hot experts that every rank holds a copy of; NVLink domains that a token's routes may reach. [-]
    products, fusions
        How the products of the experts are made; kernels that the strategy joins.
    documents, step_tokens
        Lengths of the documents in a sequence, where attention stays inside them; tokens of a replica in a step. [-]
    passes, fusion
        Layout passes of the expert transport; what the software fuses.
    """

    sequences: Numeric
    sequence_length: int
    mesh: Mesh
    recipe: Recipe
    sequence_parallel: bool = True
    cp_kind: str = "ring"
    overlap_tp: bool = False
    overlap_shared_expert: bool = False
    routed_load: Numeric = 1.0
    documents: Documents | None = None
    step_tokens: Numeric = 0.0
    passes: LayoutPasses = field(default_factory=LayoutPasses)
    fusion: Fusion = field(default_factory=Fusion)
    skew: Skew | None = None
    replicated: int = 0
    node_limit: int | None = None
    products: ExpertProducts = ExpertProducts()
    fusions: tuple[str, ...] = ()

    @property
    def plain(self) -> "Setting":
        """The same without the methods that change how many kernels a layer has: what launches were counted on."""
        return replace(self, replicated=0, products=ExpertProducts(), fusions=())

    @property
    def dense(self) -> "Setting":
        """The same as whatever lies outside the experts sees it."""
        return replace(
            self,
            overlap_shared_expert=False,
            routed_load=1.0,
            passes=LayoutPasses(),
            skew=None,
            replicated=0,
            node_limit=None,
            products=ExpertProducts(),
        )

    @property
    def tokens(self) -> Numeric:
        """Tokens that one tensor-parallel group works on, b s / cp. [-]"""
        return self.sequences * self.sequence_length / self.mesh.cp

    def columns(self, window: int | None, chunk: int | None) -> Numeric:
        """Keys that a query attends to on average, on the rank that the others wait for. [-]

        Replicas wait for each other once a step, the ranks of a ring in every layer; an exchange of heads gives every
        rank the whole sequence.
        """
        length = self.sequence_length
        if self.documents is None:
            return mean_columns(length, window, chunk)
        limit = min(length, window or length, chunk or length)
        load = self.documents.hottest(self.step_tokens, self.mesh.dp, limit)
        if self.cp_kind == "ring":
            load = load * self.documents.hottest(self.tokens, self.mesh.cp, limit)
        return self.documents.columns(length, window, chunk) * load

    @property
    def exchanged_load(self) -> Numeric:
        """Rows that the slowest rank exchanges over the mean. [-]"""
        return self.skew.exchanged if self.skew else self.routed_load

    @property
    def local_tokens(self) -> Numeric:
        """Tokens held by one rank between tensor-parallel regions. [-]"""
        return self.tokens / self.mesh.tp if self.sequence_parallel else self.tokens
