"""``moesim kernel``: what one kernel takes, or a table of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moesim.base.errors import SpecError
from moesim.base.units import parse_quantity
from moesim.cli import grammar
from moesim.cli.kernel_call import Call, answered, given, operand_bytes, routed_groups

if TYPE_CHECKING:
    from moesim.cost.grouped import Skewed

HELP = "Price one kernel on a GPU: time, rate, what binds, and the 90 % interval; or a table of measured ones."
FORMATS = "bf16, fp16, fp8, fp8-rowwise, fp8-blockwise, mxfp8 or nvfp4; bf16 where it is left out."

Gpu = Annotated[str | None, typer.Option("--gpu", metavar="GPU", help="GPU, such as h100-sxm-80gb.")]
Table = Annotated[Path | None, typer.Option("--from", metavar="CSV", help="Price a table of measured kernels.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help=FORMATS)]
Measured = Annotated[
    str | None, typer.Option("--measured", metavar="VALUE", help="What was measured: 1.2ms, 550TFLOP/s or 2.5TB/s.")
]
Calibrations = Annotated[
    str | None, typer.Option("--calibrations", metavar="FILES", help="Overlays of `moesim calibrate`, with commas.")
]
Count = Annotated[int | None, typer.Option(min=1)]


def register(app: typer.Typer) -> None:
    """Add the families of kernels."""
    app.command("gemm", help="One matrix product of m x k by k x n.")(gemm)
    app.command("grouped-gemm", help="One kernel over the experts of a rank.")(grouped)
    app.command("attention", help="Attention of a batch of sequences, causal unless told otherwise.")(attention)
    app.command("memory", help="A kernel that moves bytes through HBM.")(memory)


def gemm(
    gpu: Gpu = None,
    dtype: Dtype = None,
    m: Annotated[int | None, typer.Option("-m", min=1)] = None,
    n: Annotated[int | None, typer.Option("-n", min=1)] = None,
    k: Annotated[int | None, typer.Option("-k", min=1)] = None,
    measured: Measured = None,
    calibrations: Calibrations = None,
    table: Table = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """One matrix product."""
    from moesim.workload.ops import Gemm

    call = Call("gemm", gpu, table, calibrations, measured, as_json, output)
    if call.is_table({"--dtype": dtype, "-m": m, "-n": n, "-k": k}):
        return
    rows, columns, depth = given({"-m": m, "-n": n, "-k": k})
    rate = (dtype or "bf16").lower()
    answered(call, Gemm(rows, columns, depth, rate=rate, operand_bytes=operand_bytes(rate)))


def grouped(
    gpu: Gpu = None,
    dtype: Dtype = None,
    groups: Annotated[int | None, typer.Option("--groups", min=1, help="Experts on the rank.")] = None,
    m: Annotated[int | None, typer.Option("-m", min=1, help="Rows of one group.")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1)] = None,
    k: Annotated[int | None, typer.Option("-k", min=1)] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", min=1, help="Instead of -m: over all ranks.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="Experts that a token picks.")] = None,
    experts: Annotated[int | None, typer.Option("--experts", min=1, help="Experts over all ranks.")] = None,
    ep: Annotated[int | None, typer.Option("--ep", min=1, help="Ranks that hold them; one by default.")] = None,
    skew: Annotated[
        float | None,
        typer.Option("--skew", min=0.1, max=3, help="Exponent of a power law of the experts; even without."),
    ] = None,
    form: Annotated[str | None, typer.Option("--form", help="grouped, loop or padded.")] = None,
    capacity: Annotated[int | None, typer.Option("--capacity", min=1, help="Rows of a padded group.")] = None,
    measured: Measured = None,
    calibrations: Calibrations = None,
    table: Table = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """One kernel over the experts of a rank, or what stands in for it."""
    from moesim.workload.ops import Gemm

    call = Call("grouped-gemm", gpu, table, calibrations, measured, as_json, output)
    routing = {"--tokens": tokens, "--top-k": top_k, "--experts": experts}
    single = {"--groups": groups, "-m": m}
    beside = {"--ep": ep, "--skew": skew, "--form": form, "--capacity": capacity}
    if call.is_table({"--dtype": dtype, "-n": n, "-k": k, **single, **routing, **beside}):
        return
    form = form or "grouped"
    if form not in ("grouped", "loop", "padded"):
        raise SpecError.single("--form", "", f"no form '{form}'", "grouped, loop or padded")
    if (capacity is not None) != (form == "padded"):
        raise SpecError.single("--capacity", "", "goes with --form padded, and that with it")
    skewed: Skewed | None = None
    if any(value is not None for value in (*routing.values(), ep, skew)):
        if any(value is not None for value in single.values()):
            raise SpecError.single("--tokens", "", "does not go with -m and --groups", "give one of both")
        all_tokens, picks, all_experts = given(routing)
        rows, count, skewed = routed_groups(all_tokens, picks, all_experts, ep or 1, skew)
    else:
        count, per_group = given(single)
        rows = float(per_group)
    if skewed is not None and form != "grouped":
        raise SpecError.single("--skew", "", f"is not modelled for --form {form}", "leave one of them out")
    if capacity is not None and capacity < rows:
        raise SpecError.single("--capacity", "", f"{capacity} rows do not hold the {rows:g} of a group")
    width, depth = given({"-n": n, "-k": k})
    rate = (dtype or "bf16").lower()
    work = Gemm(rows, width, depth, count, rate=rate, operand_bytes=operand_bytes(rate))
    unlike = ("padded groups in one batch",) if form == "padded" else ()
    answered(call, work, unlike, skewed=skewed, skew_ranks=ep or 1, form=form, capacity=capacity or 0)


def attention(
    gpu: Gpu = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="bf16 or fp16; bf16 where it is left out.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="1 where it is left out.")] = None,
    length: Annotated[int | None, typer.Option("--length", min=1, help="Tokens of a sequence.")] = None,
    heads: Annotated[int | None, typer.Option("--heads", min=1)] = None,
    kv_heads: Annotated[int | None, typer.Option("--kv-heads", min=1, help="As many as heads by default.")] = None,
    head_dim: Annotated[int | None, typer.Option("--head-dim", min=1, help="128 where it is left out.")] = None,
    value_dim: Annotated[int | None, typer.Option("--value-dim", min=1, help="As --head-dim by default.")] = None,
    mla: Annotated[
        bool, typer.Option("--mla", help="Heads of latent attention: 192 for keys, 128 for values.")
    ] = False,
    window: Annotated[int | None, typer.Option("--window", min=1, help="Keys that a query sees at most.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Without the causal mask.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="The backward pass.")] = False,
    measured: Measured = None,
    calibrations: Calibrations = None,
    table: Table = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Attention of a batch of sequences."""
    from moesim.workload.model import mean_columns
    from moesim.workload.ops import AttentionCore

    call = Call("attention", gpu, table, calibrations, measured, as_json, output)
    shape = {"--batch": batch, "--length": length, "--heads": heads, "--kv-heads": kv_heads, "--window": window}
    dims = {"--head-dim": head_dim, "--value-dim": value_dim}
    flags = {"--mla": mla or None, "--full": full or None, "--backward": backward or None}
    if call.is_table({"--dtype": dtype, **shape, **dims, **flags}):
        return
    tokens, count = given({"--length": length, "--heads": heads})
    if (dtype or "bf16").lower() not in ("bf16", "fp16"):
        raise SpecError.single("--dtype", "", f"attention in '{dtype}' is not modelled", "bf16 or fp16")
    if count % (kv_heads or count):
        what = f"{count} heads do not share {kv_heads} heads of keys and values evenly"
        raise SpecError.single("--kv-heads", "", what, f"a divisor of {count}")
    if mla and any(value is not None for value in dims.values()):
        raise SpecError.single("--mla", "", "does not go with --head-dim and --value-dim", "give one of both")
    if window is not None and full:
        raise SpecError.single("--window", "", "does not go with --full", "a window is causal")
    query_dim, value = (192, 128) if mla else (head_dim or 128, value_dim or head_dim or 128)
    cut = window is not None and window < tokens
    columns = float(tokens) if full else mean_columns(tokens, window)
    unlike = ("no causal mask",) if full else ("a sliding window",) if cut else ()
    heads_of = (batch or 1, count, kv_heads or count, tokens)
    answered(call, AttentionCore(*heads_of, columns, query_dim, value, backward, balanced=full or cut), unlike)


def memory(
    gpu: Gpu = None,
    size: Annotated[str | None, typer.Option("--size", metavar="SIZE", help="Read plus written: 1GiB.")] = None,
    cast: Annotated[bool, typer.Option("--cast", help="It changes the number format.")] = False,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", help="copy (element by element, by default), or norm, activation, permute, update."),
    ] = None,
    measured: Measured = None,
    calibrations: Calibrations = None,
    table: Table = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """A kernel that moves bytes."""
    from moesim.workload.ops import Traffic

    call = Call("memory", gpu, table, calibrations, measured, as_json, output)
    if call.is_table({"--size": size, "--cast": cast or None, "--kernel": kernel}):
        return
    kinds = ("copy", "norm", "activation", "permute", "update")
    if kernel is not None and kernel not in kinds:
        raise SpecError.single("--kernel", "", f"no kernel '{kernel}'", ", ".join(kinds))
    if size is None:
        raise SpecError.single("--size", "", "is missing", "write for example --size 1GiB, or --from a CSV")
    try:
        moved = parse_quantity(size, "bytes")
    except ValueError as error:
        raise SpecError.single("--size", "", str(error)) from None
    if moved <= 0:
        raise SpecError.single("--size", "", f"'{size}' moves nothing", "write for example 1GiB")
    answered(call, Traffic(moved, cast, plain=kernel in (None, "copy") and not cast))


app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
register(app)
