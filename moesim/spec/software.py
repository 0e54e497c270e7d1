"""Training software: what it does unless told otherwise, what it refuses, what it costs.

A software has dated profiles: releases, and recipes that set its defaults otherwise. Each is a software of its own to
those who ask for it by name. A default may depend on the strategy: ``cases`` are tried in order and the first whose
``when`` holds gives the value. Rules are what a framework refuses although the machine could do it; they are reported with the framework's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StrictBool, field_validator, model_validator

from moesim.base.errors import Violation, did_you_mean
from moesim.base.expression import Expression
from moesim.spec.methods import METHODS
from moesim.spec.provenance import Bytes, Constant, Kind, Number, Positive, Seconds, SpecModel
from moesim.spec.scenario import STRATEGY_FIELDS
from moesim.spec.validation import NamedSpec

RULE_NAMES = frozenset(STRATEGY_FIELDS) - {"recompute", "layout", "fusions"} | {
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "num_experts",
    "shared_size",
    "hidden_size",
    "sequence_length",
    "global_batch",
    "num_gpus",
    "num_micro_batches",
    "dp",
    "edp",
    "recompute_full",
    "recompute_moe",
    "schedule_file",
}
"""Names that rules and defaults may use: strategy fields, the model's sizes, and what follows from them."""


@lru_cache(maxsize=1024)
def _expression(text: str) -> Expression:
    expression = Expression(text)
    for name in sorted(expression.names - RULE_NAMES):
        raise ValueError(f"'{name}' is not a name that rules know; {did_you_mean(name, RULE_NAMES)}")
    return expression


class HostConstants(SpecModel):
    """What the CPU spends for each rank."""

    kernel_launch: Seconds
    framework_per_kernel: Seconds
    graph_launch: Seconds
    device_sync: Seconds
    library_call: Seconds = Field(description="One launch inside an operation of the framework. [s]")
    chunk: Seconds = Field(description="Schedule, sends and autograd engine around a forward or a backward. [s]")
    update_rate: Number = Field(description="Parameters that the CPUs of a node update in a second. [1/s]")


class Sustained(SpecModel):
    """Shares of the rates that kernels and messages have alone which they keep within a step. [-]"""

    tensor: Positive = Field(description="GEMMs and attention: clocks under a long load, other work beside them.")
    memory: Positive = Field(description="Operations bound by memory: how far they are fused.")
    network: Positive = Field(description="Messages over NICs: other jobs, other traffic of this one.")
    nvlink: Positive = Field(description="Messages inside an NVLink domain.")


class RuntimeMemory(SpecModel):
    """Memory that is neither weights nor activations."""

    cuda_context: Bytes
    nccl_per_communicator: Bytes
    allocator_slack: Number


class Told(SpecModel):
    """Something that is not a number, with the place it comes from."""

    kind: Kind
    source: str | None = None
    quote: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _has_evidence(self) -> Told:
        if self.kind == "assumed" and not self.note:
            raise ValueError("an assumed value needs a reason; add note: why this value")
        if self.kind != "assumed" and not self.source:
            raise ValueError(f"a {self.kind} value needs a source; add source: KEY of sources.yaml")
        return self


class Flag(Told):
    """Yes or no."""

    value: StrictBool


class ReportedMemory(Told):
    """Which counter of the allocator is printed as the memory of a run."""

    value: Literal["allocated", "reserved", "active"]


class GradientReduction(Told):
    """When gradients are reduced across replicas, whether or not that is hidden."""

    value: Literal["during-backward", "after-backward"]


class GradAccumulation(Told):
    """What happens to the gradients of a micro-batch that is not the last of its step.

    ``main-grad``
        added into one buffer of the gradient's dtype by the weight-gradient GEMM.
    ``main-grad-add``
        added into one buffer of the gradient's dtype by a kernel of its own, behind the GEMM.
    ``local``
        kept and added, unsharded and unreduced.
    ``reduce-each``
        reduced to shards after each micro-batch, as all do with split gradients: the GEMM writes BF16 for the reduction.
    """

    value: Literal["main-grad", "main-grad-add", "local", "reduce-each"]


class Placement(Told):
    """How layers fall on pipeline stages that they do not fill evenly."""

    value: Literal["count-embedding-and-loss", "first-stages-larger"]


class LogitsDtype(Told):
    """Dtype in which the logits are kept for the loss."""

    value: Literal["bf16", "fp32"]


class AttentionKernel(Told):
    """How the attention core runs.

    ``fused``
        one kernel as fast as those that the GPU was calibrated with (cuDNN up to 2025, TensorRT-LLM).
    ``latest``
        one of those for training of 2026: cuDNN 9.18 and later, FlashAttention 3 on Hopper, FlashAttention 4 on Blackwell.
    ``flash1``, ``flash2``
        the first FlashAttention, or its kernel in Triton; its second version, without the asynchronous tensor cores of Hopper.
    ``sdpa``
        PyTorch's own choice: ``latest`` on Blackwell, where it puts cuDNN first, ``flash2`` on what came before.
    ``fp8``
        as ``latest``, with products in FP8 where the recipe casts and queries are as wide as values.
    ``unfused``
        a product, a softmax, a dropout and a product, with all scores in memory; the mask saves nothing.
    """

    value: Literal["fused", "latest", "sdpa", "fp8", "flash1", "flash2", "unfused"]


class GemmLibrary(Told):
    """Which library multiplies 16-bit matrices.

    ``calibrated``
        one as fast as that which the GPU was calibrated with.
    ``first``
        one of the first releases for the architecture of the GPU.
    """

    value: Literal["calibrated", "first"]


class Runtime(SpecModel):
    """What the framework does around the operations of a layer.

    Launches count the kernels of forward and backward of one layer and micro-batch, with what hangs on them.
    """

    compiled: Flag = Field(description="torch.compile joins norms, activations, residuals and casts.")
    fused_rope: Flag = Field(description="Rotary embedding in one kernel.")
    fused_cross_entropy: Flag = Field(description="Softmax and loss in one pass, gradients in place of the logits.")
    fused_linear_cross_entropy: Flag = Field(description="Output projection and loss in chunks; no logits are kept.")
    logits_dtype: LogitsDtype
    logits_bytes: Number | None = Field(None, description="Bytes a logit at the peak of the loss, where known. [B]")
    parallel_logits_bytes: Number | None = Field(
        None, description="The same where tensor-parallel ranks share the vocabulary; as alone where open. [B]"
    )
    launches_per_dense_layer: Number
    launches_per_moe_layer: Number | None = None
    launches_per_operation: Number | None = Field(
        None,
        description="Launches that an operation of a routed layer stands for, where the layer's are not counted. [-]",
    )
    product_each_expert: Flag | None = Field(None, description="A library multiplies expert by expert, on streams.")
    gradient_reduction: GradientReduction
    grad_accumulation: GradAccumulation
    grad_add_slowdown: Number | None = Field(
        None,
        description="Time of a kernel that adds gradients over that of a plain one of as many bytes; 1 where open. [-]",
    )
    grad_bucket: Flag | None = Field(
        None,
        description="Split gradients go through a bucket of extra_memory beside what computes; a block's own if open.",
    )
    whole_reduction: Flag | None = Field(
        None, description="Gradients of a sharded optimizer are all-reduced all the same; scattered where open."
    )
    main_param_remainders: Flag = Field(description="Main weights hold only the bits that the BF16 weights lack.")
    bf16_layers: Number = Field(description="Layers at both ends that stay in BF16 under an FP8 or FP4 recipe. [-]")
    gemm_library: GemmLibrary | None = Field(None, description="Library of products; the calibrated one where open.")
    attention_kernel: AttentionKernel | None = Field(None, description="How the attention core runs; fused where open.")
    bf16_expert_wgrad: Flag | None = Field(
        None, description="Weight gradients of routed experts are multiplied in BF16 under every recipe."
    )
    latent_value_views: Flag | None = Field(
        None, description="Values of latent attention are views of the up-projection, which stays whole; else copies."
    )
    operators: Flag | None = Field(
        None, description="Norms, rotary embedding and gated activations run operator by operator, in eager PyTorch."
    )
    weights_in_combine: Flag | None = Field(None, description="Router weights multiply outputs, which are kept.")
    sequence_copies: Flag | None = Field(
        None, description="Gathers and scatters of tensor parallelism along the sequence copy what they move."
    )
    blocking_gathers: Flag | None = Field(
        None, description="Gathers of sharded weights wait for what runs, and what follows waits for them."
    )
    shard_copy: Seconds | None = Field(
        None, description="What a gathered or scattered tensor costs for each rank whose shard is copied on its own."
    )
    tensors_per_layer: Number | None = Field(None, description="Tensors of a layer that are gathered one by one. [-]")
    placement: Placement
    nvls: Flag = Field(description="Collectives may add in the NVLink switch.")
    reported_memory: ReportedMemory
    extra_memory: Bytes = Field(description="Held by the runtime beside context, NCCL and tensors of the model. [B]")

    @model_validator(mode="after")
    def _counts_routed_layers(self) -> Runtime:
        if (self.launches_per_moe_layer is None) == (self.launches_per_operation is None):
            raise ValueError("give launches_per_moe_layer, as counted, or launches_per_operation, and not both")
        return self


class Case(SpecModel):
    """A value of a default and when it applies; no `when` means otherwise."""

    value: Any
    when: str | None = None

    @field_validator("when")
    @classmethod
    def _readable(cls, text: str | None) -> str | None:
        if text is not None:
            _expression(text)
        return text


class Default(SpecModel):
    """What the software does with a strategy field that a scenario leaves out."""

    value: Any = None
    cases: tuple[Case, ...] = ()
    kind: Kind
    source: str | None = None
    quote: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Default:
        if self.cases and self.cases[-1].when is not None:
            raise ValueError("the last case still has a condition; end with a case that has none")
        if self.kind == "assumed" and not self.note:
            raise ValueError("an assumed default needs a reason; add note: why this value")
        if self.kind != "assumed" and not self.source:
            raise ValueError(f"a {self.kind} default needs a source; add source: KEY of sources.yaml")
        return self

    def resolve(self, values: Mapping[str, Any]) -> Any:
        """Return the default for one strategy; `values` holds what its conditions ask for, as numbers."""
        for case in self.cases:
            if case.when is None or _expression(case.when).evaluate(values):
                return case.value
        return self.value

    @property
    def names(self) -> frozenset[str]:
        """Names that its conditions ask for."""
        return frozenset().union(*(_expression(case.when).names for case in self.cases if case.when))

    def choices(self, values: Mapping[str, Any]) -> list[tuple[Any, bool | NDArray[np.bool_]]]:
        """Return every value and where it is the default, for values of which some are arrays."""
        found: list[tuple[Any, bool | NDArray[np.bool_]]] = []
        left: bool | NDArray[np.bool_] = True
        for case in self.cases:
            applies = True if case.when is None else _expression(case.when).evaluate(values)
            found.append((case.value, np.logical_and(left, applies)))
            left = np.logical_and(left, np.logical_not(applies))
        return found or [(self.value, True)]


class Rule(SpecModel):
    """Something that the framework refuses."""

    name: str
    when: str = "true"
    require: str
    message: str
    legal: str = ""
    source: str
    quote: str | None = None

    @field_validator("when", "require")
    @classmethod
    def _readable(cls, text: str) -> str:
        _expression(text)
        return text

    @property
    def names(self) -> frozenset[str]:
        """Names whose values the rule needs."""
        return _expression(self.when).names | _expression(self.require).names

    def holds(self, values: Mapping[str, Any]) -> bool | NDArray[np.bool_]:
        """Return whether strategies obey the rule: a bool, or an array where a value is one."""
        applies = _expression(self.when).evaluate(values)
        result = np.asarray(np.logical_or(np.logical_not(applies), _expression(self.require).evaluate(values)))
        return result if result.ndim else bool(result)

    def violation(self, values: Mapping[str, Any], software: str) -> Violation | None:
        """Return what is wrong with one strategy, or None."""
        if self.holds(values):
            return None
        message, legal = self.message.format_map(values), self.legal.format_map(values)
        return Violation(f"{software}: {self.name}", message, legal, self.source)


class Profile(SpecModel):
    """What a release or a set of recipes does otherwise; each part writes only what differs from its base.

    ``without_rules``: rules of its base that it does not have, by name. ``rules``: those that it has besides.
    """

    date: str
    base: str | None = None
    summary: str
    aliases: tuple[str, ...] = ()
    version: str | None = None
    versions: tuple[str, ...] = ()
    source: str | None = None
    note: str | None = None
    host: dict[str, Any] = Field(default_factory=dict)
    sustained: dict[str, Any] = Field(default_factory=dict)
    memory: dict[str, Any] = Field(default_factory=dict)
    runtime: dict[str, Any] = Field(default_factory=dict)
    constants: dict[str, Any] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)
    without_rules: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


class SoftwareSpec(NamedSpec):
    """One training framework, or one of its profiles.

    ``versions`` are beginnings of the version strings that a published run may carry and that mean this profile.
    """

    date: str | None = None
    version: str | None = None
    versions: tuple[str, ...] = ()
    profile_of: str | None = Field(None, description="What this profile builds on.")
    source: str | None = None
    note: str | None = None
    host: HostConstants
    sustained: Sustained
    memory: RuntimeMemory
    runtime: Runtime
    constants: dict[str, Constant] = Field(default_factory=dict)
    defaults: dict[str, Default]
    rules: tuple[Rule, ...] = ()
    profiles: dict[str, Profile] = Field(default_factory=dict)

    @field_validator("defaults")
    @classmethod
    def _known_fields(cls, defaults: dict[str, Default]) -> dict[str, Default]:
        for name in defaults:
            if name not in STRATEGY_FIELDS:
                raise ValueError(f"'{name}' is not a strategy field; {did_you_mean(name, STRATEGY_FIELDS)}")
        for name in STRATEGY_FIELDS:
            if name not in defaults and name not in METHODS:
                raise ValueError(f"no default for '{name}'; add {name}: {{value: ..., source: KEY, kind: datasheet}}")
        return defaults

    def violations(self, values: Mapping[str, Any]) -> list[Violation]:
        """Return the rules that one strategy breaks."""
        broken = (rule.violation(values, self.name) for rule in self.rules)
        return [violation for violation in broken if violation is not None]
