"""Scenarios: a model, a cluster, a batch and a strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr, StrictBool, StrictInt, StrictStr, model_validator

from moesim.base.units import parse_quantity
from moesim.spec.methods import ExpertMethods, Names
from moesim.spec.provenance import SpecModel
from moesim.spec.validation import Count, NamedSpec
from moesim.spec.yaml_file import Document, KeyPath


def _layout(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def cluster_mapping(value: Any) -> Any:
    """Return ``node:count`` as a mapping."""
    if not isinstance(value, str):
        return value
    node, colon, count = value.rpartition(":")
    if not colon or not count.isdigit():
        raise ValueError(f"'{value}' is not NODE:count; write for example 'hgx-h100:32' for 32 nodes")
    return {"node": node, "count": int(count)}


def _routing(value: Any) -> Any:
    """Return rows of experts as the histogram that they are."""
    if isinstance(value, list):
        return "histogram:" + ",".join(str(rows) for rows in value)
    return value


def _quantity(dimension: str) -> BeforeValidator:
    def parse(value: Any) -> Any:
        return None if value is None else parse_quantity(str(value), dimension)

    return BeforeValidator(parse)


Degree = Annotated[StrictInt, Field(ge=1, le=10**6)]
"""A parallel degree, or another count of a strategy."""
Layout = Annotated[StrictStr | tuple[Annotated[StrictInt, Field(ge=0)], ...], BeforeValidator(_layout)]


class StrategySpec(ExpertMethods):
    """The strategy as written; fields that are left out take the default of the software."""

    tp: Degree | None = None
    cp: Degree | None = None
    pp: Degree | None = None
    vpp: Degree | None = None
    ep: Degree | None = None
    etp: Degree | None = None
    micro_batch: Degree | None = None
    sequence_parallel: StrictBool | None = None
    schedule: StrictStr | None = None
    layout: Layout | None = None
    cp_kind: StrictStr | None = None
    transport: StrictStr | None = None
    dp_sharding: StrictStr | None = None
    reshard_after_forward: StrictBool | None = None
    recompute: Names | None = None
    precision: StrictStr | None = None
    fp8_params: StrictBool | None = None
    param_dtype: StrictStr | None = None
    main_param_dtype: StrictStr | None = None
    grad_dtype: StrictStr | None = None
    optimizer_state_dtype: StrictStr | None = None
    overlap_grad_reduce: StrictBool | None = None
    overlap_param_gather: StrictBool | None = None
    overlap_tp: StrictBool | None = None
    overlap_ep: StrictBool | None = None
    overlap_shared_expert: StrictBool | None = None
    overlap_p2p: StrictBool | None = None
    cuda_graph: StrictStr | None = None
    routing: Annotated[StrictStr, BeforeValidator(_routing)] | None = None
    rank_imbalance: float | None = None
    capacity_factor: float | None = None
    optimizer: StrictStr | None = None
    adapter: StrictStr | None = None
    adapter_targets: StrictStr | None = None
    activation_offload: float | None = None
    optimizer_offload: float | None = None
    expert_offload: float | None = None
    grad_bucket_bytes: Annotated[float | None, _quantity("bytes")] = None
    grad_compression: StrictStr | None = None
    stale_gradients: StrictBool | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The fields that were written, by name."""
        return {name: value for name in STRATEGY_FIELDS if (value := getattr(self, name)) is not None}


STRATEGY_FIELDS: tuple[str, ...] = tuple(StrategySpec.model_fields)
"""Names of the strategy fields."""


class ClusterSpec(SpecModel):
    """How many nodes of which kind, on which fabric; the node names its usual fabric.

    ``gpus``: GPUs that the job uses, where it leaves some of its only node idle.
    """

    node: StrictStr
    count: Annotated[StrictInt, Field(ge=1, le=10**6)]
    fabric: StrictStr | None = None
    gpus: Count | None = None


class DocumentsSpec(SpecModel):
    """Lengths of the documents that are packed into a sequence, in tokens; attention stays inside a document.

    ``mean`` with a coefficient of variation ``cv`` (log-normal), or ``histogram``: documents of each length.
    """

    mean: Annotated[float, Field(ge=1, le=1e9)] | None = None
    cv: Annotated[float, Field(ge=0, le=100)] | None = None
    histogram: dict[int, Annotated[float, Field(gt=0)]] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> DocumentsSpec:
        if (self.mean is None) == (self.histogram is None) or (self.cv is not None and self.mean is None):
            raise ValueError("write mean, with cv where lengths differ, or histogram: {512: 3, 4096: 1}")
        if self.histogram is not None and (not self.histogram or min(self.histogram) < 1):
            raise ValueError("a histogram has lengths of 1 token or more, with the documents of each")
        return self


class MeasuredSpec(SpecModel):
    """What was measured when the scenario ran."""

    step_time: Annotated[float | None, Field(gt=0), _quantity("time")] = None
    tflop_per_s_per_gpu: float | None = None
    flops_convention: StrictStr | None = None
    tokens_per_s_per_gpu: float | None = None
    peak_memory: Annotated[float | None, _quantity("bytes")] = None
    run_id: StrictStr | None = None
    source: StrictStr
    note: StrictStr | None = None


class ScenarioSpec(NamedSpec):
    """One training run to estimate.

    ``attention`` puts another kind in the place of the model's: ``gqa:8``, ``mha``, ``mla:qk192``.
    ``overrides`` changes a number of the hardware or software for this scenario only, by its dotted path:
    ``gpu.memory_bandwidth: 4 TB/s``. ``calibrations`` are files that ``moesim calibrate`` wrote for kernels of its GPU;
    they stand in for those that are shipped. ``documents``: lengths of those that fill a sequence; left out, a sequence
    is one document.
    """

    model: StrictStr
    attention: StrictStr | None = None
    cluster: Annotated[ClusterSpec, BeforeValidator(cluster_mapping)]
    software: StrictStr = "megatron-core"
    sequence_length: Annotated[StrictInt, Field(ge=1, le=10**9)]
    global_batch: Annotated[StrictInt, Field(ge=1, le=10**9)]
    strategy: StrategySpec = StrategySpec()
    documents: DocumentsSpec | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    calibrations: Names = ()
    measured: MeasuredSpec | None = None
    notes: StrictStr | None = None

    _document: Document = PrivateAttr()
    _folder: Path | None = PrivateAttr(default=None)
    _assumed: tuple[str, ...] = PrivateAttr(default=())

    @property
    def document(self) -> Document:
        """What was read, with its lines."""
        return self._document

    @property
    def folder(self) -> Path | None:
        """Folder of the file, to which a path to a model is relative."""
        return self._folder

    @property
    def assumed(self) -> tuple[str, ...]:
        """Fields that nobody gave."""
        return self._assumed

    def assume(self, *fields: str) -> ScenarioSpec:
        """Return itself, knowing which fields nobody gave."""
        self._assumed = fields
        return self

    def bind(self, document: Document, folder: Path | None) -> ScenarioSpec:
        """Return itself, knowing where it was read from."""
        self._document = document
        self._folder = folder
        return self

    def line(self, path: str) -> int | None:
        """Return the line of a dotted path, or of the closest thing around it."""
        return self._document.line(_key_path(path))

    def where(self, path: str) -> str:
        """Return ``file:line`` of a dotted path, or the option that set it."""
        return self._document.where(_key_path(path))


def _key_path(path: str) -> KeyPath:
    if path.startswith("overrides."):
        return ("overrides", path.removeprefix("overrides."))
    return tuple(path.split("."))
