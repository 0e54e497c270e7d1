"""``moesim specs``: what can be named in a scenario, and whether every spec is sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from moesim.base.errors import Issue, SpecError, did_you_mean
from moesim.base.registry import Registry
from moesim.cli import grammar
from moesim.spec import library
from moesim.spec.yaml_file import display_name

HELP = """List what scenarios can name: hardware, models, software, methods; show one; check all."""


def registries() -> dict[str, Registry[Any]]:
    """Registries of methods by the word that lists them."""
    from moesim.cost.collectives import algorithms
    from moesim.cost.expert_gemms import expert_gemms
    from moesim.cost.transports import transports
    from moesim.fabric.builders import builders
    from moesim.timeline.schedules import schedules
    from moesim.workload.adapters import adapters
    from moesim.workload.compression import compressions
    from moesim.workload.fusions import fusions
    from moesim.workload.optimizers import optimizers
    from moesim.workload.precision import recipes
    from moesim.workload.recompute import policies
    from moesim.workload.routing import routings

    return {
        "schedules": schedules,
        "transports": transports,
        "fusions": fusions,
        "recompute": policies,
        "routings": routings,
        "precisions": recipes,
        "optimizers": optimizers,
        "adapters": adapters,
        "compressions": compressions,
        "collectives": algorithms,
        "topologies": builders,
        "expert-gemms": expert_gemms,
    }


def kinds() -> list[str]:
    """Every word that lists something."""
    return sorted({*library.KINDS, *registries()})


def command(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help="gpus, models, schedules, ...")] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Check every spec, scenario and source.")] = False,
    as_json: grammar.JsonOption = False,
    output: grammar.OutputOption = None,
) -> None:
    """Run the verb."""
    grammar.writable(output=output)
    if check:
        if kind is not None:
            raise SpecError.single("--check", "", f"checks everything, not only '{kind}'", "leave the kind out")
        counts = _check()
        shown = "all sound: " + ", ".join(f"{count} {word}" for word, count in counts.items())
        grammar.deliver({"sound": True, "counts": counts}, shown, as_json, output)
        return
    if kind is None:
        listing = {word: _names(word) for word in kinds()}
        grammar.deliver(
            listing, _table(["kind", "names"], [(k, ", ".join(v)) for k, v in listing.items()]), as_json, output
        )
        return
    if kind not in kinds():
        raise SpecError.single("", "", f"no kind of spec '{kind}'", did_you_mean(kind, kinds()))
    if name is None:
        rows = _list(kind)
        columns = list(rows[0]) if rows else ["name"]
        shown = _table(columns, [tuple(_short(row[column]) for column in columns) for row in rows])
        grammar.deliver(rows, shown, as_json, output)
        return
    plain = _one(kind, name)
    grammar.deliver(plain, _table(["field", "value"], _with_units(kind, name, _flat(plain))), as_json, output)


def _check() -> dict[str, int]:
    from moesim.problem import resolve
    from moesim.spec.check import check as check_files
    from moesim.spec.check import sources
    from moesim.spec.scenario import ScenarioSpec

    issues = list(check_files())
    counts = {kind: len(library.names(kind)) for kind in library.KINDS}
    for kind in ("scenarios", "runs"):
        for scenario in library.names(kind):
            try:
                spec = library.get(kind, scenario)
                assert isinstance(spec, ScenarioSpec)
                resolve(spec).plan()
            except SpecError as error:
                issues.extend(issue for issue in error.issues if issue not in issues)
    known = sources()
    for kind, registry in registries().items():
        for entry in registry.entries():
            if entry.source not in known:
                what = f"no source '{entry.source}'"
                issues.append(Issue(f"{kind} {entry.name}", "source", what, did_you_mean(entry.source, known)))
    for fabric in library.names("fabrics"):
        try:
            registries()["topologies"].get(
                library.get("fabrics", fabric).kind, display_name(library.file("fabrics", fabric)), "kind"
            )
        except SpecError as error:
            issues.extend(issue for issue in error.issues if issue not in issues)
    if issues:
        raise SpecError(issues)
    return counts


def _names(kind: str) -> list[str]:
    registry = registries().get(kind)
    return registry.names() if registry else library.names(kind)


def _list(kind: str) -> list[dict[str, Any]]:
    registry = registries().get(kind)
    if registry:
        return [{"name": e.name, "summary": e.summary, "source": e.source} for e in registry.entries()]
    if kind == "models":
        return [_model(name) for name in library.names("models")]
    return [{"name": s.name, "summary": s.summary, "aliases": list(s.aliases)} for s in library.summary(kind)]


def _model(name: str) -> dict[str, Any]:
    from moesim.workload.from_spec import model_from_spec

    spec = library.get("models", name)
    model = model_from_spec(spec)
    return {
        "name": spec.name,
        "summary": spec.summary,
        "total_params": model.total_params,
        "active_params": model.active_params,
        "mtp_params": model.mtp_params,
        "qk_norm_params": model.qk_norm_params,
        "params_convention": "active counts input embedding and LM head; both leave out MTP modules, position tables, "
        "and query and key norm gains",
    }


def _one(kind: str, name: str) -> dict[str, Any]:
    registry = registries().get(kind)
    if registry:
        registry.get(name)
        entry = next(entry for entry in registry.entries() if entry.name == name)
        plain: dict[str, Any] = {"name": entry.name, "summary": entry.summary, "source": entry.source}
        if kind in library.KINDS and name in library.names(kind):
            plain |= library.get(kind, name).model_dump(by_alias=True, exclude_none=True)
        return plain
    spec = library.get(kind, name)
    plain = spec.model_dump(by_alias=True, exclude_none=True)
    if kind == "models":
        plain = _model(spec.name) | plain
    return plain


def _flat(plain: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in plain.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and "kind" in value and {"value", "cases"} & set(value):
            rows.append((path, f"{_valued(value)}   [{value['kind']}: {value.get('source') or value.get('note', '')}]"))
        elif isinstance(value, dict):
            rows.extend(_flat(value, f"{path}."))
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            for index, item in enumerate(value):
                rows.extend(_flat(item, f"{path}[{index}]."))
        else:
            rows.append((path, _short(value)))
    return rows


def _with_units(kind: str, name: str, rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Rows with the numbers of a spec written with their units."""
    if kind not in library.KINDS or (kind in registries() and name not in library.names(kind)):
        return rows
    texts = {path: number.text for path, number in library.get(kind, name).provenance().items()}
    return [(path, f"{texts[path]} {shown[shown.index('  [') :]}" if path in texts else shown) for path, shown in rows]


def _valued(sourced: dict[str, Any]) -> str:
    """A sourced number, or a default that may depend on the strategy."""
    cases = sourced.get("cases") or [sourced]
    return ", ".join(
        f"{_short(c.get('value'))} if {c['when']}" if c.get("when") else _short(c.get("value")) for c in cases
    )


def _short(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _table(columns: list[str], rows: Sequence[tuple[str, ...]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    for row in rows:
        table.add_row(*map(Text, row))  # as it stands: brackets are no markup
    return table
