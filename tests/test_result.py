"""The answer as data, as JSON, and as notebooks show it."""

import json

import pytest

from moesim.base.errors import Violation
from moesim.estimator import estimate
from moesim.result import BREAKDOWN, Estimate


@pytest.fixture(scope="module")
def answer(qwen) -> Estimate:
    return estimate(qwen)


def test_the_answer_survives_json(answer, answer_keys):
    plain = answer.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert list(plain) == answer_keys
    assert tuple(plain["breakdown_s"]) == BREAKDOWN


def test_numbers_are_plain(estimates):
    for _, one in estimates:
        text = json.dumps(one.to_dict(), allow_nan=False)
        assert "NaN" not in text


def test_violations_carry_rule_message_and_what_is_legal(qwen):
    plain = estimate(qwen, qwen.strategy.replace(micro_batch=4)).to_dict()
    (violation,) = plain["violations"]
    assert set(violation) == {"rule", "message", "legal"}
    assert plain["feasible"] is False


def test_the_binding_resource_is_what_the_step_depends_on_most(answer):
    needs = {constant.path: abs(constant.elasticity) for constant in answer.constants}
    shares = {
        "tensor-cores": sum(needs[name] for name in needs if name.startswith("gpu.rates.")),
        "host": sum(needs[name] for name in needs if name.startswith("host.")),
    }
    assert answer.binding["resource"] == max(shares, key=lambda name: shares[name])
    assert answer.binding["share"] == pytest.approx(max(shares.values()))
    assert min(shares.values()) > needs["gpu.memory_bandwidth"]


@pytest.mark.parametrize(
    ("changes", "resource"),
    [
        ({"gpu.kernels.memory_efficiency": 0.05}, "hbm"),
        ({"transports.deepep.inter_dispatch_rdma_bandwidth": "1 GB/s"}, "nic"),
        ({"ep": 8, "transports.deepep.intra_dispatch_nvlink_bandwidth": "1 GB/s"}, "nvlink"),
        ({"software.host.framework_per_kernel": "2 ms"}, "host"),
        ({"software.host.framework_per_kernel": "0 s", "software.host.kernel_launch": "0 s"}, "tensor-cores"),
        ({"transports.deepep.inter_dispatch_sm_bandwidth": "100 MB/s"}, "transport-sms"),
    ],
)
def test_another_machine_binds_elsewhere(qwen, changes, resource):
    assert estimate(qwen.with_changes(changes)).binding["resource"] == resource


def test_notebooks_show_the_same_table(answer):
    page = answer._repr_html_()
    for words in ("step time", "expert (grouped) GEMM", "Memory of each pipeline rank", f"{answer.mfu:.1%}"):
        assert words in page, words


def test_a_violation_reads_as_a_line():
    assert str(Violation("rule", "what", "1, 2")) == "rule: what; legal: 1, 2"
