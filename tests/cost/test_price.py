"""One operation: its price by the shape of its work, and what the host pays to launch it."""

from dataclasses import replace

import pytest

from moesim.cost.attention import attention_time
from moesim.cost.collectives import collective_time
from moesim.cost.gemm import gemm_time
from moesim.cost.grouped import grouped_gemm_time
from moesim.cost.memory_bound import traffic_time
from moesim.cost.price import launch_time, op_time
from moesim.cost.transports import leg_time, transports
from moesim.workload.mesh import Mesh
from moesim.workload.ops import AttentionCore, ExpertLeg, Gemm, Message, Op, Traffic

MESH = Mesh(64, 2, 1, 1, 1, 8)
LONELY = Mesh(64, 1, 1, 1, 1, 1)
GEMM = Gemm(512, 1024, 2048)
CORE = AttentionCore(1, 8, 2, 2048, 1024, 128, 128)
LEG = ExpertLeg("dispatch", 1024, 4, 32, 4096)
GATHER = Message("all-gather", "tp", 1e7)


@pytest.fixture
def price(machine):
    transport = transports.get("deepep")
    return lambda work, category, mesh=MESH: float(op_time(Op("x", category, work), mesh, machine, transport))


def test_every_shape_of_work_has_its_price(price, machine):
    gpu = machine.gpu
    assert price(GEMM, "gemm") == gemm_time(GEMM, gpu)
    assert price(CORE, "attention") == attention_time(CORE, gpu)
    assert price(Traffic(1e8), "memory_bound") == traffic_time(1e8, gpu)
    slower = traffic_time(1e8 / gpu.kernels.quantize_efficiency, gpu)
    assert price(Traffic(1e8, cast=True), "memory_bound") == slower > traffic_time(1e8, gpu)
    assert price(GATHER, "tp") == collective_time("all-gather", 1e7, machine.group(MESH, "tp"), machine.links)
    assert price(LEG, "ep") == leg_time(transports.get("deepep"), LEG, machine.group(MESH, "ep"), machine)


def test_a_grouped_product_pays_its_own_fixed_time(machine):
    fixed = machine.gpu.kernels.grouped_gemm_fixed
    slower = replace(machine.gpu, kernels=replace(machine.gpu.kernels, grouped_gemm_fixed=fixed + 5e-6))
    for rows in (16, 4096):
        work = replace(GEMM, m=rows, groups=8)
        op = Op("experts", "grouped_gemm", work)
        times = [
            op_time(op, MESH, replace(machine, gpu=gpu), transports.get("deepep")) for gpu in (machine.gpu, slower)
        ]
        assert times[1] - times[0] == pytest.approx(5e-6)
        assert times[0] == grouped_gemm_time(work, machine.gpu)


def test_an_axis_of_one_rank_neither_moves_nor_launches(price, machine):
    nothing = Message("all-gather", "tp", 0.0)
    assert price(nothing, "tp") == launch_time(Op("x", "tp", nothing), MESH, machine) == 0
    for work, category in ((GATHER, "tp"), (LEG, "ep")):
        op = Op("x", category, work, kernels=3)
        assert price(work, category, LONELY) == 0
        assert launch_time(op, LONELY, machine) == 0
        assert launch_time(op, MESH, machine) == pytest.approx(3 * machine.host.launch)


def test_every_kernel_is_launched(machine):
    assert launch_time(Op("x", "gemm", GEMM), LONELY, machine) == machine.host.launch
    assert launch_time(Op("x", "memory_bound", Traffic(0.0), kernels=0), MESH, machine) == 0
    assert launch_time(Op("x", "memory_bound", Traffic(1.0), kernels=7), MESH, machine) == 7 * machine.host.launch
