"""``moesim collective``: what a collective should take, and whether a measurement of it is healthy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moesim.base.errors import SpecError
from moesim.base.units import parse_quantity
from moesim.cli import grammar

if TYPE_CHECKING:
    from moesim.studies.collectives import CollectivePrice, Setting

HELP = """Price a collective (allreduce, allgather, reducescatter, alltoall, sendrecv) on a cluster, judge a measurement of it,
or price a table of measured ones.

Sizes and rates are those of nccl-tests: --size 1GiB, --measured 30GB/s (busbw) or --measured 2.4ms. With --from, --cluster says
where a file was measured that does not say it; COLLECTIVE, --nranks and --gpus-per-node what a log leaves out.
"""


def command(
    operation: Annotated[str | None, typer.Argument(metavar="[COLLECTIVE]", help="Such as allreduce.")] = None,
    cluster: Annotated[str | None, typer.Option("--cluster", metavar="NODE:COUNT", help="Such as hgx-h100:16.")] = None,
    fabric: Annotated[
        str | None, typer.Option("--fabric", metavar="NAME", help="Between the nodes: torus3d, fat-tree:2.")
    ] = None,
    size: Annotated[str | None, typer.Option("--size", metavar="SIZE[,SIZE]", help="Such as 8MiB,1GiB.")] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", min=1, help="Of the group in each node.")
    ] = None,
    measured: Annotated[str | None, typer.Option("--measured", metavar="RATE|TIME", help="Busbw, or a time.")] = None,
    algo: Annotated[
        str | None,
        typer.Option(
            "--algo", help="As NCCL_ALGO: ring,tree or ^nvls; or collnet, symmetric, copy-engine, hierarchical."
        ),
    ] = None,
    proto: Annotated[str | None, typer.Option("--proto", help="As NCCL_PROTO: simple or ^ll128.")] = None,
    nvls: Annotated[bool, typer.Option("--nvls/--no-nvls", help="Sums in the NVSwitch.")] = True,
    pxn: Annotated[
        str | None, typer.Option("--pxn", metavar="on,off", help="Messages to other rails over NVLink first, or not.")
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="All sizes from 1 KiB to 16 GiB; -o curve.svg plots.")] = False,
    table: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Price a CSV or log; with --sweep set its rows beside."),
    ] = None,
    nranks: Annotated[
        int | None, typer.Option("--nranks", min=2, help="Ranks of a log that does not say them.")
    ] = None,
    own: grammar.CalibrationsOption = None,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(out=output)
    given = {
        "COLLECTIVE": operation,
        "--cluster": cluster,
        "--fabric": fabric,
        "--size": size,
        "--gpus-per-node": gpus_per_node,
        "--measured": measured,
        "--algo": algo,
        "--proto": proto,
        "--no-nvls": not nvls,
        "--nranks": nranks,
        "--pxn": pxn,
    }

    from moesim.studies import collectives as study
    from moesim.studies.priced_files import priced_table
    from moesim.traces.collective_table import operation_named

    def setting(name: str, per_node: int | None) -> Setting:
        files = grammar.files(own)
        return study.setting(name, per_node, fabric=fabric, algorithms=algo, protocols=proto, nvls=nvls, own=files)

    if table is not None and not sweep:
        _refuse(given, ("--size", "--measured", "--pxn"), "--from", "prices what the table says")
        told = [name for name in ("--algo", "--proto", "--no-nvls") if given[name]]
        if cluster is None and (told or own):
            raise SpecError.single(told[0] if told else "--calibrations", "", "needs --cluster with --from", "name it")
        grammar.suffixed(output, (".json", ".txt"))
        where = None if cluster is None else setting(cluster, None)
        logged = operation_named(operation, "COLLECTIVE") if operation else None
        _table(priced_table(table, where, collective=logged, ranks=nranks, per_node=gpus_per_node), as_json, output)
        return
    _refuse(given, ("--nranks",), "--nranks", "is for --from a log")
    if operation is None or cluster is None or (size is None and not sweep):
        needed = "moesim collective alltoall --cluster hgx-h100:16 --size 1GiB"
        raise SpecError.single("", "", "COLLECTIVE, --cluster and --size are needed", f"write for example {needed}")

    name = study.collective_named(operation)
    where = setting(cluster, gpus_per_node)
    if sweep:
        _refuse(given, ("--size", "--measured", "--pxn"), "--sweep", "takes all sizes")
        _sweep(name, where, table, as_json, output)
        return
    if output is not None and output.suffix in grammar.PICTURES:
        raise SpecError.single("--out", "", f"'{output}' is a picture", "--sweep draws one; name a .json or .txt")
    grammar.suffixed(output, (".json", ".txt"))

    from moesim.studies import collective_health as health

    counts = _sizes(str(size))
    if len(counts) > 1:
        _refuse(given, ("--pxn",), "--size", "names several")
        if measured is not None and not measured.strip().endswith("/s"):
            raise SpecError.single(
                "--measured", "", "is a time, of one size", "name one --size, or give a bus bandwidth"
            )
    if pxn is not None:
        from moesim.cli import collective_rails

        _refuse(given, ("--gpus-per-node", "--algo", "--proto", "--no-nvls"), "--pxn", "is for whole nodes as they are")
        own_files = grammar.files(own)
        collective_rails.deliver(
            name, counts[0], (cluster, fabric, own_files), pxn, (measured, where), (as_json, output)
        )
        return
    plains: list[dict[str, Any]] = []
    tables = []
    for count in counts:
        expected = study.price(name, count, where)
        plain = expected.to_dict() | {"node": where.node, "fabric": where.fabric}
        if measured is not None:
            time = health.measured_time(measured, name, count, expected.group)
            plain |= health.verdict(expected, time, where)
        plains.append(plain)
        tables.append(_one(expected, plain))
    from rich.console import Group

    grammar.deliver(plains[0] if len(plains) == 1 else {"cases": plains}, Group(*tables), as_json, output)


def _sizes(text: str) -> list[float]:
    """Sizes of a message, separated by commas. [B]"""
    found = []
    for word in text.split(","):
        try:
            count = parse_quantity(word.strip(), "bytes")
        except ValueError as error:
            raise SpecError.single("--size", "", str(error)) from None
        if count <= 0:
            raise SpecError.single("--size", "", f"'{word.strip()}' is not above zero", "give a size such as 1GiB")
        found.append(count)
    return found


def _refuse(given: Mapping[str, object], names: Iterable[str], option: str, does: str) -> None:
    """Refuse options that another one leaves no room for."""
    idle = [name for name in names if given[name]]
    if idle:
        raise SpecError.single(option, "", does, f"leave {', '.join(idle)} out")


def _sweep(name: str, where: Setting, rows: Path | None, as_json: bool, output: Path | None) -> None:
    """Print the curve, or draw it where the output is a picture."""
    from moesim.report import collective_curve as curve
    from moesim.studies import collectives as study
    from moesim.studies.priced_files import rows_like

    grammar.suffixed(output, (".json", ".txt", *grammar.PICTURES))
    measured = rows_like(rows, name, where) if rows is not None else []
    prices = [study.price(name, one, where) for one in study.sweep_sizes()]
    if output is not None and output.suffix in grammar.PICTURES:
        ranks = f"{where.group.size:.0f} GPUs in {where.group.nodes:.0f} NVLink domain(s)"
        curve.draw(prices, measured, f"{name} on {where.node}: {ranks}", output)
        return
    plain: dict[str, Any] = {"rows": [one.to_dict() for one in prices]}
    if rows is not None:
        plain["measured"] = [
            {"size_bytes": row.size, "time_s": row.time, "busbw_bytes_per_s": curve.rate(row), "wrong": row.wrong}
            for row in measured
        ]
    grammar.deliver(plain, curve.table(prices, measured), as_json, output)


def _one(expected: CollectivePrice, plain: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    from moesim.studies.collectives import bus_words, shown

    table = Table(show_header=False)
    ranks = (
        f"{expected.group.size:.0f} GPUs, {expected.group.per_node:.0f} a domain, {expected.group.nodes:.0f} domain"
        + ("s" if expected.group.nodes > 1 else "")
    )
    low, high = shown(expected.low, "time"), shown(expected.high, "time")
    lines = [
        (expected.collective, f"{shown(expected.size, 'bytes')} on {ranks}"),
        ("fabric", plain["fabric"]),
        ("time", f"{shown(expected.time, 'time')}   (90 %: {low} to {high}, {expected.evidence})"),
        ("algbw", f"{shown(expected.algbw, 'rate')}   (size / time)"),
        ("busbw", f"{shown(expected.busbw, 'rate')}   (algbw x {bus_words(expected.collective)})"),
        ("chosen", f"{expected.algorithm}, {expected.protocol}, {expected.channels:.0f} channels (SMs)"),
        ("bound by", expected.binding),
    ]
    lines += [("evidence", reason) for reason in expected.why]
    if "verdict" in plain:
        rate, share = shown(plain["measured_busbw_bytes_per_s"], "rate"), plain["share_of_expected"]
        lines.append(
            ("measured", f"{shown(plain['measured_s'], 'time')}, busbw {rate}: {share:.0%} of the expected rate")
        )
        lines.append(("verdict", plain["verdict"] + (f": {plain['note']}" if "note" in plain else "")))
    for line in lines:
        table.add_row(*line)
    if not plain.get("causes"):
        return table
    likely = Table("likely cause", "busbw it gives", "how it shows")
    for cause in plain["causes"]:
        likely.add_row(cause["cause"], shown(cause["busbw_bytes_per_s"], "rate"), cause["how_it_shows"])
    return Group(table, likely)


def _table(found: dict[str, Any], as_json: bool, output: Path | None) -> None:
    from rich.table import Table

    table = Table(show_header=False)
    told = found["summary"]
    for name in ("count", "with_time"):
        table.add_row(name.replace("_", " "), f"{told[name]:,}")
    for name in ("median", "p90", "bias", "coverage"):
        if name in told:
            table.add_row(name, f"{told[name]:+.1%}" if name == "bias" else f"{told[name]:.1%}")
    for verdict, count in told.get("verdicts", {}).items():
        table.add_row("verdict", f"{count:,}: {verdict}")
    for reason, count in told["refused"].items():
        table.add_row("refused", f"{count:,}: {reason}")
    grammar.deliver(found, table, as_json, output)
