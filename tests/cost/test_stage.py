"""Chunks as small graphs that can be worked out by hand."""

import numpy as np
import pytest

from moesim.cost.stage import HostTimes, PricedOp, chunk_time, interleaved, segments, sequential
from moesim.workload.ops import Op, Traffic

WORK = Traffic(1.0)


def op(name, seconds, category="gemm", segment="attention", needs=(), host_sync=False, launch=0.0):
    return PricedOp(Op(name, category, WORK, segment=segment, needs=needs, host_sync=host_sync), seconds, launch)


def time(*layers, sync=0.0, share=0.0, keep=None, shape=()):
    return chunk_time(sequential(layers), shape, HostTimes(sync), share, keep or {})


def parts(chunk):
    return {name: value for name, value in chunk.categories.items() if value}


def test_operations_run_one_after_another():
    chunk = time((op("a", 1.0), op("b", 2.0, "tp"), op("c", 4.0, "ep")), (op("d", 8.0, "attention"),))
    assert chunk.seconds == 15.0
    assert parts(chunk) == {"gemm": 1.0, "tp": 2.0, "ep": 4.0, "attention": 8.0}


def test_nothing_takes_no_time():
    assert time().seconds == 0
    assert time().categories == {}


def test_what_does_not_wait_runs_beside():
    # the reduce-scatter of dx runs beside wgrad; the norm waits for both
    chunk = time(
        (
            op("dgrad", 2.0),
            op("scatter", 3.0, "tp", needs=("dgrad",)),
            op("wgrad", 4.0, needs=("dgrad",)),
            op("norm", 1.0, "memory_bound", needs=("scatter", "wgrad")),
        )
    )
    assert chunk.seconds == 7.0
    assert parts(chunk) == {"gemm": 6.0, "memory_bound": 1.0}


def test_a_lane_runs_one_operation_at_a_time():
    chunk = time((op("a", 1.0), op("b", 2.0, needs=("a",)), op("c", 3.0, needs=("a",))))
    assert chunk.seconds == 6.0


def test_launches_hide_behind_long_kernels_and_not_behind_short_ones():
    assert time(tuple(op(str(i), 10.0, launch=1.0) for i in range(5))).seconds == 51.0
    bound = time(tuple(op(str(i), 1.0, launch=10.0) for i in range(5)))
    assert bound.seconds == 51.0
    assert parts(bound) == {"gemm": 1.0, "host": 50.0}


def test_a_host_sync_exposes_the_launches_behind_it():
    def chunk(sync):
        ops = [op("router", 20.0, launch=1.0), op("dispatch", 4.0, "ep", host_sync=sync, launch=1.0)]
        return time((*ops, op("b", 10.0, launch=2.0), op("c", 10.0, launch=2.0)), sync=5.0)

    assert chunk(False).seconds == 1 + 20 + 4 + 20
    assert chunk(True).seconds == 1 + 20 + 5 + 2 + 20  # counts are read behind the router, while the rows travel
    assert chunk(True).categories["host"] == 8.0


@pytest.mark.parametrize(("launch", "seconds"), [(1.0, 1 + 3 * 10), (12.0, 3 * 12 + 7)])
def test_what_the_host_does_between_chunks_hides_behind_the_device(launch, seconds):
    layer = tuple(op(str(i), 10.0, launch=launch) for i in range(3))
    assert chunk_time(sequential([layer]), (), HostTimes(0.0, chunk=7.0), 0.0, {}).seconds == max(
        seconds, 3 * launch + 10
    )


def test_hidden_classes_vanish_in_their_columns_only():
    keep = {"ep": np.array([1.0, 0.0, 1.0]), "host": np.array([1.0, 1.0, 0.0])}
    chunk = time((op("a", 1.0, launch=3.0), op("b", 2.0, "ep"), op("c", 4.0)), keep=keep, shape=(3,))
    assert chunk.seconds.tolist() == [10.0, 8.0, 7.0]
    assert parts(chunk) == {"host": 3.0, "gemm": 5.0, "ep": 2.0}


def test_columns_are_scalar_runs():
    generator = np.random.default_rng(5)
    seconds, launches = generator.random((2, 6, 4))
    categories = ("gemm", "ep", "tp", "gemm", "memory_bound", "ep")

    def chunk(columns, shape):
        ops = [
            op(str(i), seconds[i][columns], category, launch=launches[i][columns], host_sync=i == 1)
            for i, category in enumerate(categories)
        ]
        return time(tuple(ops), sync=0.3, share=0.2, shape=shape).seconds

    together = chunk(slice(None), (4,))
    assert [chunk(column, ()) for column in range(4)] == together.tolist()


def layer(back=False, scale=1.0):
    """Attention 2, dispatch 3, experts 2, combine 3, in the order of a forward or of a backward."""
    parts = [
        op("attention", 2.0 * scale, segment="attention"),
        op("dispatch", 3.0 * scale, "ep", "dispatch"),
        op("experts", 2.0 * scale, "grouped_gemm", "experts"),
        op("combine", 3.0 * scale, "ep", "combine"),
    ]
    return tuple(parts[::-1] if back else parts)


def pair(num_layers, share=0.0, scale=1.0):
    pieces = interleaved([layer(scale=scale)] * num_layers, [layer(back=True, scale=scale)] * num_layers)
    return chunk_time(pieces, (), HostTimes(0.0), share, {})


def test_an_interleaved_pair_hides_exchange_behind_computation():
    assert time(layer()).seconds == 10.0
    alone = 2 * 4 * 10.0
    together = float(pair(4).seconds)
    assert together < alone
    assert together >= 2 * 4 * 6.0  # the ep lane is busy all the time
    assert together == pytest.approx(2 * 4 * 6.0, abs=2 * 2.0)
    assert sum(pair(4).categories.values()) == pytest.approx(together)


def test_an_interleaved_pair_computes_the_same_work():
    pieces = interleaved([layer()] * 3, [layer(back=True)] * 3)
    names = [priced.op.name for piece in pieces for priced in piece.ops]
    assert sorted(names) == sorted(["attention", "dispatch", "experts", "combine"] * 6)


def test_the_order_of_an_interleaved_pair_is_that_of_megatron_core():
    """While one chain exchanges rows, the other computes."""
    pieces = interleaved([layer()], [layer(back=True)])
    assert [(piece.chain, piece.ops[0].op.segment) for piece in pieces] == [
        (1, "combine"),
        (0, "attention"),
        (0, "dispatch"),
        (1, "experts"),
        (1, "dispatch"),
        (0, "experts"),
        (0, "combine"),
        (1, "attention"),
    ]


def test_layers_that_the_other_chain_lacks_and_blocks_without_experts_run_alone():
    head = (op("head", 5.0, segment="head"),)
    pieces = interleaved([layer(), head], [layer(back=True)] * 2)
    assert [(piece.chain, piece.ops[0].op.segment) for piece in pieces if len(piece.ops) != 1 or piece.ops == head] == [
        (0, "head"),
        (1, "combine"),
    ]


def test_segments_keep_their_order():
    ops = (op("a", 1.0), op("x", 1.0, segment="experts"), op("b", 1.0))
    assert [priced.op.name for priced in segments(ops)["attention"]] == ["a", "b"]


@pytest.mark.parametrize(("exchange", "compute"), [(3.0, 4.0), (6.0, 4.0)])
def test_kernels_pay_for_the_sms_of_a_running_transport(exchange, compute):
    ops = (op("exchange", exchange, "ep"), op("kernel", compute))
    chunk = time(ops, share=0.25)
    # SM-seconds that the transport takes while kernels run, at most all the time that they run
    assert chunk.seconds == pytest.approx(exchange + compute + 0.25 * min(exchange, compute))
