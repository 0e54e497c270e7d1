"""``moesim exchange``: what a dispatch or combine of experts should take, and whether a measurement is healthy."""

from __future__ import annotations

from typing import Annotated

import typer

from moesim.cli import grammar

HELP = """Price one DIRECTION of the expert exchange, dispatch or combine; all GPUs of the cluster are one expert group.

Bandwidths are those that DeepEP's tests print: rows to every NVLink domain (or, in one domain, every rank) that a token
reaches, its own included, over the time. The defaults are those of its tests.
"""


def command(
    direction: Annotated[str, typer.Argument(metavar="DIRECTION", help="dispatch or combine.")],
    cluster: Annotated[str, typer.Option("--cluster", metavar="NODE:COUNT", help="Such as hgx-h800:4.")],
    transport: Annotated[str, typer.Option("--transport", help="moesim specs transports.")] = "deepep",
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="Of each rank.")] = 4096,
    hidden: Annotated[int, typer.Option("--hidden", min=1, help="Values of a row.")] = 7168,
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Experts of a token.")] = 8,
    experts: Annotated[int, typer.Option("--experts", min=1, help="In all.")] = 256,
    node_limit: Annotated[
        int | None, typer.Option("--node-limit", min=1, help="NVLink domains that a token may reach.")
    ] = None,
    precision: Annotated[str, typer.Option("--precision", help="Of the rows: bf16 or fp8.")] = "bf16",
    num_sms: Annotated[int | None, typer.Option("--num-sms", min=1, help="That the kernels take.")] = None,
    measured: Annotated[str | None, typer.Option("--measured", metavar="RATE|TIME", help="Such as 30.8GB/s.")] = None,
    own: grammar.CalibrationsOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(out=output)
    grammar.suffixed(output, (".json", ".txt"))

    from rich.table import Table

    from moesim.studies import exchange as study
    from moesim.studies.collectives import shown

    rows = study.Rows(tokens, hidden, top_k, experts, precision, node_limit)
    found = study.exchanged(direction, transport, cluster, rows, num_sms, grammar.files(own))
    plain = found.to_dict() | (study.verdict(found, measured) if measured is not None else {})
    table = Table(show_header=False)
    group = f"{found.group.size:.0f} GPUs in {found.group.nodes:.0f} NVLink domain(s)"
    low, high = shown(found.low, "time"), shown(found.high, "time")
    lines = [
        (
            f"{direction}, {transport}",
            f"{tokens:,} tokens a rank of {shown(float(found.leg.row_bytes), 'bytes')}, {group}",
        ),
        ("time", f"{shown(found.time, 'time')}   (90 %: {low} to {high}, {found.evidence})"),
        (f"{found.wire} bandwidth", f"{shown(found.bandwidth, 'rate')}   (logical, as DeepEP prints it)"),
        ("SMs", f"{found.num_sms:.0f} of {found.gpu_sms:.0f}: products beside it keep {plain['sms_left_share']:.1%}"),
        *(("evidence", reason) for reason in found.why),
    ]
    if measured is not None:
        rate, share = shown(plain["measured_bandwidth_bytes_per_s"], "rate"), plain["share_of_expected"]
        lines.append(("measured", f"{shown(plain['measured_s'], 'time')}, {rate}: {share:.0%} of the expected rate"))
        lines.append(("verdict", f"{plain['verdict']}: {plain['note']}"))
    for line in lines:
        table.add_row(*line)
    grammar.deliver(plain, table, as_json, output)
