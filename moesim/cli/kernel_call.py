"""A call of ``moesim kernel``: its options, and the answer as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moesim.base.errors import SpecError, blamed
from moesim.base.units import format_quantity, parse_quantity
from moesim.cli import grammar
from moesim.spec import library

if TYPE_CHECKING:
    from moesim.cost.grouped import Skewed
    from moesim.spec.calibration import CalibrationSpec
    from moesim.studies.kernel_prices import KernelPrice, TablePrices
    from moesim.workload.ops import AttentionCore, Gemm, Traffic


@dataclass(frozen=True)
class Call:
    """What all families of kernels take."""

    family: str
    gpu: str | None
    table: Path | None
    calibrations: str | None
    measured: str | None
    as_json: bool
    output: Path | None

    def own(self) -> tuple[CalibrationSpec, ...]:
        """The user's calibrations."""
        from moesim.spec.calibration import CalibrationSpec
        from moesim.spec.validation import validate
        from moesim.spec.yaml_file import read_document

        names = [name.strip() for name in (self.calibrations or "").split(",") if name.strip()]
        return tuple(validate(CalibrationSpec, read_document(Path(name))) for name in names)

    def is_table(self, shape: Mapping[str, Any]) -> bool:
        """Price the table, where one is given; options of a single kernel do not go with it."""
        grammar.writable(output=self.output)
        if self.table is None:
            return False
        from moesim.studies.kernel_prices import table_prices

        for name, value in (*shape.items(), ("--measured", self.measured)):
            if value is not None:
                raise SpecError.single(name, "", "does not go with --from", "the table says it; leave it out")
        gpu = self.gpu.lower() if self.gpu else None
        if gpu is not None:
            with blamed("--gpu"):
                library.find("gpus", gpu)
        found = table_prices(self.family, self.table, gpu, self.own())
        grammar.deliver(found.to_dict(), _summary(found), self.as_json, self.output)
        return True


def given(values: Mapping[str, int | None]) -> list[int]:
    """Values that must be there."""
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise SpecError.single(" ".join(missing), "", "is missing", "give the shape, or --from a CSV")
    return [value for value in values.values() if value is not None]


def operand_bytes(dtype: str) -> float:
    """Bytes of a value with its scales. [B]"""
    from moesim.base.errors import did_you_mean
    from moesim.calibrate.dense import OPERAND_BYTES

    if dtype not in OPERAND_BYTES:
        raise SpecError.single("--dtype", "", f"no format '{dtype}'", did_you_mean(dtype, OPERAND_BYTES))
    return OPERAND_BYTES[dtype]


def routed_groups(
    tokens: int, top_k: int, experts: int, ranks: int, skew: float | None
) -> tuple[float, int, Skewed | None]:
    """Rows of a group on average, groups of a rank, and the tiles of the hottest rank where routing is uneven."""
    from moesim.calibrate.routing import power_law_skew
    from moesim.cost.grouped import Skewed

    if experts % ranks:
        raise SpecError.single("--ep", "", f"{experts} experts do not spread over {ranks} ranks", "a divisor of them")
    if top_k > experts:
        raise SpecError.single("--top-k", "", f"{top_k} of {experts} experts cannot be picked")
    groups = experts // ranks
    rows = tokens * top_k / experts
    if skew is None:
        return rows, groups, None
    exponent = skew if skew != 1 else 1.0001  # the law has no closed form at 1
    found = power_law_skew(exponent, tokens, experts, top_k, ranks)
    return rows * found.load, groups, Skewed(found.active, found.tiles)


def answered(call: Call, work: Gemm | AttentionCore | Traffic, unlike: tuple[str, ...] = (), **how: Any) -> None:
    """Price one kernel and print it."""
    from moesim.studies.kernel_prices import Asked, kernel_price, least_time

    if call.gpu is None:
        raise SpecError.single("--gpu", "", "is missing", "write for example --gpu h100-sxm-80gb")
    with blamed("--gpu"):
        library.find("gpus", call.gpu.lower())
    asked = Asked(call.family, work, call.gpu.lower(), unlike, own=call.own(), **how)
    found = kernel_price(asked)
    plain, shown = found.to_dict(), _shown(found)
    if call.measured is not None:
        from moesim.studies.kernel_verdicts import verdict

        told = verdict(_measured_time(call.measured, found), found, least_time(asked))
        plain["verdict"] = told.to_dict()
        shown += f"\nverdict     {told.text}" + "".join(f"\n            {cause}" for cause in told.causes)
    grammar.deliver(plain, shown, call.as_json, call.output)


def _measured_time(text: str, price: KernelPrice) -> float:
    """Time that a measured time or rate stands for. [s]"""
    for dimension, amount in (("time", None), ("flop_rate", price.flop), ("bandwidth", price.num_bytes)):
        try:
            value = parse_quantity(text, dimension)
        except ValueError:
            continue
        if value <= 0 or amount == 0:
            break
        return value if amount is None else amount / value
    raise SpecError.single("--measured", "", f"'{text}' says no time of this kernel", "1.2ms, 550TFLOP/s or 2.5TB/s")


def _shown(price: KernelPrice) -> str:
    time, low, high = (format_quantity(value, "time") for value in (price.time_s, price.low_s, price.high_s))
    lines = [f"time        {time}  (90 %: {low} to {high})"]
    if price.flop:
        lines.append(f"rate        {format_quantity(price.flop / price.time_s, 'flop_rate')}")
    lines.append(f"traffic     {price.num_bytes / price.time_s / 1e9:.4g} GB/s")
    lines.append(f"bound       {price.bound}, {price.efficiency:.0%} of the datasheet rate")
    parts = ", ".join(
        f"{name} {format_quantity(value, 'time') if value >= 1e-9 else 'under 1 ns'}"
        for name, value in price.parts.items()
    )
    lines.append(f"parts       {parts}")
    lines.append(f"evidence    {price.evidence}" + "".join(f"; {why}" for why in price.why))
    lines += _nearest(price)
    return "\n".join(lines)


def _nearest(price: KernelPrice) -> list[str]:
    if not price.nearest:
        return ["measured    nothing near it"]
    first = price.nearest[0]
    what = f"; {first.what}" if first.what else ""
    lines = [f"measured    nearest on {first.gpu} ({first.source}{what})"]
    for point in price.nearest:
        shape = ", ".join(
            f"{name} {value if isinstance(value, str) else f'{value:.12g}'}" for name, value in point.shape.items()
        )
        took = format_quantity(point.time_s, "time")
        lines.append(f"            {shape}: {took}, priced {point.error:+.1%}, {point.distance:.1f} doublings away")
    return lines


def _summary(prices: TablePrices) -> str:
    one = prices.score
    lines = [f"{prices.priced:,} rows priced"]
    if one.count:
        covered = f", {one.coverage:.0%} inside their 90 % interval" if one.coverage is not None else ""
        lines[0] += f": error median {one.median:.1%}, p90 {one.p90:.1%}, bias {one.bias:+.1%}{covered}"
        grouped = prices.rows.groupby("gpu_name")["error"]
        lines += [f"  {name}: {part.count():,} rows, median {part.abs().median():.1%}" for name, part in grouped]
    lines += [f"refused {count:,}: {reason}" for reason, count in sorted(prices.refused.items())]
    return "\n".join(lines)
