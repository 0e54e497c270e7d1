"""What-if: values changed by an option, checked like values in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moesim.base.errors import Collector, SpecError, did_you_mean
from moesim.spec import library
from moesim.spec.scenario import STRATEGY_FIELDS, ClusterSpec, ScenarioSpec, cluster_mapping
from moesim.spec.software import Runtime
from moesim.spec.topology import TopologySpec
from moesim.spec.validation import validate
from moesim.spec.yaml_file import Document, KeyPath, parse_value

HARDWARE_PREFIXES = ("gpu", "nic", "node", "fabric", "software", "transports")
"""First words of the paths that change a number of the hardware or software."""
MACHINE_PREFIXES = ("gpu", "nic", "node", "fabric")
"""Those of the hardware, another number of which is another machine."""

_SCENARIO_FIELDS = tuple(name for name in ScenarioSpec.model_fields if name not in ("schema_version", "aliases"))


def with_overrides(scenario: ScenarioSpec, changes: Mapping[str, Any], where: str = "--set") -> ScenarioSpec:
    """Return a scenario with some values changed.

    Parameters
    ----------
    changes
        Path to value. ``ep`` and ``strategy.ep`` are the same; ``cluster.count``, ``sequence_length``, ``model`` are
        fields of the scenario; ``gpu.memory_bandwidth``, ``node.links.p2p_latency``, ``transports.deepep.num_sms``
        change a number of a spec. Text is read as in a file: ``16``, ``true``, ``[layernorm, moe_act]``, ``4 TB/s``.
    where
        Option that the values came from, for messages.
    """
    problems = Collector()
    document = scenario.document
    for path, value in _spread(changes, where, problems).items():
        origin = f"{where} {path if path in changes else COMM_SMS}"
        key = _key(path)
        parts = path.split(".")
        if parts[0] == "transports" and len(parts) > 1 and parts[1] not in library.names("transports"):
            what = f"no expert transport '{parts[1]}'"
            problems.add(origin, "", what, did_you_mean(parts[1], library.names("transports")))
            continue
        if parts[0] in HARDWARE_PREFIXES and parts[-1] in ("name", "summary", "aliases", "schema", "architecture"):
            problems.add(origin, "", f"'{parts[-1]}' is no number", "name another spec instead, such as cluster.node")
            continue
        if path in UNPRICED:
            problems.add(origin, "", "no price depends on it", UNPRICED[path])
            continue
        if path in HARDWARE_PREFIXES and path not in _SCENARIO_FIELDS:
            problems.add(origin, "", f"'{path}' is named by the node", "set cluster.node, or one number of it")
            continue
        if key is None:
            known = [*STRATEGY_FIELDS, *_SCENARIO_FIELDS, *(f"cluster.{name}" for name in ClusterSpec.model_fields)]
            problems.add(origin, "", f"nothing is called '{path}'", did_you_mean(path, known))
            continue
        if key[0] == "cluster" and isinstance(document.data.get("cluster"), str):
            document = document.with_value(("cluster",), cluster_mapping(document.data["cluster"]), origin)
        document = document.with_value(key, parse_value(value) if isinstance(value, str) else value, origin)
    try:
        changed = validate(ScenarioSpec, document)
    except SpecError as error:
        problems.extend(error.issues)
    problems.raise_if_any()
    still_assumed = [name for name in scenario.assumed if (name,) not in document.origins]
    return changed.bind(document, scenario.folder).assume(*still_assumed)


COMM_SMS = "comm_sms"
"""Path that sets the SMs of every transport whose kernels copy by SMs."""


def sm_driven(transport: str) -> bool:
    """Whether the legs of a transport get faster with the SMs that it holds."""
    return any(name.endswith("_sm_bandwidth") for name in library.get("transports", transport).constants)


def sms_paths(transport: str) -> tuple[str, ...]:
    """Paths of the SMs that the kernels of a transport hold; none where it has no such number."""
    constants = library.get("transports", transport).constants
    return tuple(f"transports.{transport}.{key}" for key in ("num_sms", "inter_num_sms") if key in constants)


def _spread(changes: Mapping[str, Any], where: str, problems: Collector) -> dict[str, Any]:
    """Changes with ``comm_sms`` as what it stands for."""
    found = {path: value for path, value in changes.items() if path != COMM_SMS}
    if COMM_SMS not in changes:
        return found
    told = str(changes[COMM_SMS]).strip()
    if not told.isdigit() or not 1 <= int(told) <= 1024:
        problems.add(f"{where} {COMM_SMS}", "", f"'{told}' is no number of SMs", "write for example 20")
        return found
    for name in library.names("transports"):
        if sm_driven(name):
            found |= dict.fromkeys(sms_paths(name), told)
    return found


UNPRICED = {
    "software.runtime.reported_memory": "it says what a run table prints",
    "software.runtime.fused_rope": "kernels of the rotary embedding are part of the launches per layer",
    "software.runtime.gradient_reduction": "set overlap_grad_reduce",
    "software.constants.reduce_bucket_elements": "set grad_bucket_bytes",
    "software.constants.prefetch_bucket_elements": "buckets are not modelled yet",
    "node.cpu": "it names the host",
    "nic.protocol": "it names the network",
}
"""Numbers that specs carry and no price reads yet: changing one is refused instead of changing nothing."""


def _key(path: str) -> KeyPath | None:
    first, _, rest = path.partition(".")
    if first in HARDWARE_PREFIXES and rest:
        return ("overrides", path)
    if first == "overrides" and rest:
        return ("overrides", rest)
    if first in _SCENARIO_FIELDS:
        return tuple(path.split("."))
    return ("strategy", path) if path in STRATEGY_FIELDS else None


SET_BY_OPTION = "set by --"
"""How the note of a number begins that an option has set; those of a file name the file."""


def apply_overrides(
    document: Document, changes: Mapping[str, Any], where: Mapping[str, str], inner: KeyPath = ()
) -> Document:
    """Return the document of a spec with some of its values changed; a sourced number becomes ``assumed``.

    Paths are looked up below `inner`; one that leads nowhere raises a `SpecError` with the keys that exist there.
    """
    problems = Collector()
    for path, value in changes.items():
        key = (*inner, *path.split("."))
        current, known = _lookup(document.data, key)
        group, _, name = path.rpartition(".")
        if current is None and group == "topology" and name in OPTIONAL[group]:
            document = document.with_value(key, _wired(name, value, where[path]), where[path])
        elif current is None and group == "runtime" and name in OPTIONAL[group]:
            told = {"value": value, "kind": "assumed", "note": f"set by {where[path]}"}
            document = document.with_value(key, told, where[path])
        elif current is None:
            known = list(dict.fromkeys([*known, *OPTIONAL.get(group, ())]))
            problems.add(where[path], "", f"nothing is called '{path}'", did_you_mean(path.split(".")[-1], known))
        elif isinstance(current, dict) and "value" in current:
            changed = {"value": value, "kind": "assumed", "note": f"set by {where[path]}"}
            document = document.with_value(key, changed, where[path])
        elif isinstance(current, dict):
            problems.add(where[path], "", f"'{path}' is a group", "name one of " + ", ".join(current))
        else:
            document = document.with_value(key, value, where[path])
    problems.raise_if_any()
    return document


OPTIONAL = {"topology": tuple(TopologySpec.model_fields), "runtime": tuple(Runtime.model_fields)}
"""Fields of a group that a spec may leave out and an option may set."""


def _wired(name: str, value: Any, where: str) -> Any:
    """A value of the wiring that a fabric leaves to its kind: a number with its source, or a plain word or count."""
    told = {"kind": "assumed", "note": f"set by {where}"}
    if name in ("radix", "wan_bandwidth", "wan_latency"):
        return {"value": value, **told}
    if name == "upper_oversubscription":
        return [{"value": one, **told} for one in (value if isinstance(value, list) else [value])]
    return value


def _lookup(data: Any, key: KeyPath) -> tuple[Any, list[str]]:
    """Return the value at a path, or None and the keys of the level at which the path ends."""
    for part in key:
        known = list(data) if isinstance(data, dict) else []
        if part not in known:
            return None, known
        data = data[part]
    return data, []
