"""``moesim kernel``: what one kernel takes, or a table of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moesim.base.errors import SpecError
from moesim.base.units import format_quantity, parse_quantity
from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.studies.kernel_prices import KernelPrice, TablePrices
    from moesim.workload.ops import AttentionCore, Gemm, Traffic

HELP = "Price one kernel on a GPU: time, rate, what binds, and the 90 % interval; or a table of measured ones."

Gpu = Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="GPU, such as h100-sxm-80gb.")]
Table = Annotated[Path | None, typer.Option("--from", metavar="CSV", help="Price a table of measured kernels.")]
Dtype = Annotated[str, typer.Option("--dtype", help="bf16, fp16, fp8, fp8-rowwise, fp8-blockwise, mxfp8 or nvfp4.")]
Size = Annotated[int | None, typer.Option(min=1)]


def register(app: typer.Typer) -> None:
    """Add the families of kernels."""

    @app.command("gemm", help="One matrix product of m x k by k x n.")
    def gemm(
        gpu: Gpu = None,
        dtype: Dtype = "bf16",
        m: Annotated[int | None, typer.Option("-m", min=1)] = None,
        n: Annotated[int | None, typer.Option("-n", min=1)] = None,
        k: Annotated[int | None, typer.Option("-k", min=1)] = None,
        table: Table = None,
        as_json: grammar.JsonOption = False,
        output: grammar.OutputOption = None,
    ) -> None:
        from moesim.workload.ops import Gemm

        if table is None:
            given = _given({"-m": m, "-n": n, "-k": k})
            work = Gemm(given["-m"], given["-n"], given["-k"], rate=dtype, operand_bytes=_operand_bytes(dtype))
            _one("gemm", work, gpu, as_json, output)
        else:
            _all("gemm", table, gpu, as_json, output)

    @app.command("grouped-gemm", help="One kernel over the experts of a rank, m rows for each of them.")
    def grouped(
        gpu: Gpu = None,
        dtype: Dtype = "bf16",
        groups: Annotated[int | None, typer.Option("--groups", min=1, help="Experts on the rank.")] = None,
        m: Annotated[int | None, typer.Option("-m", min=1, help="Rows of one group.")] = None,
        n: Annotated[int | None, typer.Option("-n", min=1)] = None,
        k: Annotated[int | None, typer.Option("-k", min=1)] = None,
        table: Table = None,
        as_json: grammar.JsonOption = False,
        output: grammar.OutputOption = None,
    ) -> None:
        from moesim.workload.ops import Gemm

        if table is None:
            given = _given({"--groups": groups, "-m": m, "-n": n, "-k": k})
            sizes = (given["-m"], given["-n"], given["-k"], given["--groups"])
            _one("grouped-gemm", Gemm(*sizes, rate=dtype, operand_bytes=_operand_bytes(dtype)), gpu, as_json, output)
        else:
            _all("grouped-gemm", table, gpu, as_json, output)

    @app.command("attention", help="Causal attention of a batch of sequences.")
    def attention(
        gpu: Gpu = None,
        batch: Annotated[int, typer.Option("--batch", min=1)] = 1,
        length: Annotated[int | None, typer.Option("--length", min=1, help="Tokens of a sequence.")] = None,
        heads: Annotated[int | None, typer.Option("--heads", min=1)] = None,
        kv_heads: Annotated[int | None, typer.Option("--kv-heads", min=1)] = None,
        head_dim: Annotated[int, typer.Option("--head-dim", min=1)] = 128,
        value_dim: Annotated[int | None, typer.Option("--value-dim", min=1)] = None,
        backward: Annotated[bool, typer.Option("--backward", help="The backward pass.")] = False,
        table: Table = None,
        as_json: grammar.JsonOption = False,
        output: grammar.OutputOption = None,
    ) -> None:
        from moesim.workload.ops import AttentionCore

        if table is None:
            given = _given({"--length": length, "--heads": heads})
            tokens, count = given["--length"], given["--heads"]
            if count % (kv_heads or count):
                what = f"{count} heads do not share {kv_heads} heads of keys and values evenly"
                raise SpecError.single("--kv-heads", "", what, f"a divisor of {count}")
            shape = (batch, count, kv_heads or count, tokens, tokens / 2, head_dim, value_dim or head_dim, backward)
            _one("attention", AttentionCore(*shape), gpu, as_json, output)
        else:
            _all("attention", table, gpu, as_json, output)

    @app.command("memory", help="A kernel that moves bytes through HBM.")
    def memory(
        gpu: Gpu = None,
        size: Annotated[str | None, typer.Option("--size", metavar="SIZE", help="Read plus written: 1GiB.")] = None,
        cast: Annotated[bool, typer.Option("--cast", help="It changes the number format.")] = False,
        table: Table = None,
        as_json: grammar.JsonOption = False,
        output: grammar.OutputOption = None,
    ) -> None:
        from moesim.workload.ops import Traffic

        if table is not None:
            _all("memory", table, gpu, as_json, output)
            return
        if size is None:
            raise SpecError.single("--size", "", "is missing", "write for example --size 1GiB, or --from a CSV")
        try:
            moved = parse_quantity(size, "bytes")
        except ValueError as error:
            raise SpecError.single("--size", "", str(error)) from None
        if moved <= 0:
            raise SpecError.single("--size", "", f"'{size}' moves nothing", "write for example 1GiB")
        _one("memory", Traffic(moved, cast), gpu, as_json, output)


def _given(values: dict[str, int | None]) -> dict[str, int]:
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise SpecError.single(" ".join(missing), "", "is missing", "give the shape, or --from a CSV")
    return {name: value for name, value in values.items() if value is not None}


def _operand_bytes(dtype: str) -> float:
    from moesim.base.errors import did_you_mean
    from moesim.calibrate.dense import OPERAND_BYTES

    if dtype not in OPERAND_BYTES:
        raise SpecError.single("--dtype", "", f"no format '{dtype}'", did_you_mean(dtype, OPERAND_BYTES))
    return OPERAND_BYTES[dtype]


def _one(
    family: str, work: Gemm | AttentionCore | Traffic, gpu: str | None, as_json: bool, output: Path | None
) -> None:
    from moesim.studies.kernel_prices import kernel_price

    if gpu is None:
        raise SpecError.single("--gpu", "", "is missing", "write for example --gpu h100-sxm-80gb")
    found = kernel_price(family, work, gpu)
    grammar.deliver(found.to_dict(), _shown(found), as_json, output)


def _all(family: str, table: Path, gpu: str | None, as_json: bool, output: Path | None) -> None:
    from moesim.studies.kernel_prices import table_prices

    found = table_prices(family, table, gpu)
    grammar.deliver(found.to_dict(), _summary(found), as_json, output)


def _shown(price: KernelPrice) -> str:
    time, low, high = (format_quantity(value, "time") for value in (price.time_s, price.low_s, price.high_s))
    lines = [f"time        {time}  (90 %: {low} to {high})"]
    if price.flop:
        lines.append(f"rate        {format_quantity(price.flop / price.time_s, 'flop_rate')}")
    moved = price.num_bytes / price.time_s
    lines.append(f"traffic     {moved / 1e9:.0f} GB/s")
    lines.append(f"bound       {price.bound}, {price.efficiency:.0%} of the datasheet rate")
    parts = ", ".join(f"{name} {format_quantity(value, 'time')}" for name, value in price.parts.items())
    lines.append(f"parts       {parts}")
    lines.append(f"evidence    {price.evidence}")
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
    lines = [f"{one.count:,} rows priced"]
    if one.count:
        covered = f", {one.coverage:.0%} inside their 90 % interval" if one.coverage is not None else ""
        lines[0] += f": error median {one.median:.1%}, p90 {one.p90:.1%}, bias {one.bias:+.1%}{covered}"
        grouped = prices.rows.groupby("gpu_name")["error"]
        lines += [f"  {name}: {part.count():,} rows, median {part.abs().median():.1%}" for name, part in grouped]
    lines += [f"refused {count:,}: {reason}" for reason, count in sorted(prices.refused.items())]
    return "\n".join(lines)
