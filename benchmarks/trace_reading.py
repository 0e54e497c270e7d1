"""Reading a trace of a gigabyte: seconds and peak memory of a process of its own, on a file made for it.

python benchmarks/trace_reading.py [--gigabytes 1.0]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPERATOR = (
    '{{"ph": "X", "cat": "cpu_op", "name": "aten::{op}", "pid": 4711, "tid": 4711, "ts": {ts:.3f}, "dur": 12.345,\n'
    '    "args": {{\n      "External id": {id}, "Record function id": 0, "Concrete Inputs": ["", "", ""], '
    '"Input type": ["c10::BFloat16", "c10::BFloat16", ""], "Input Strides": [[4096, 1], [1, 4096], []], '
    '"Input Dims": [[{m}, 4096], [4096, 11008], []], "Ev Idx": {id}\n    }}\n  }}'
)
FRAME = (
    '{{"ph": "X", "cat": "python_function", "name": "torch/nn/modules/module.py({line}): _call_impl", "pid": 4711, '
    '"tid": 4711, "ts": {ts:.3f}, "dur": 25.125,\n'
    '    "args": {{"Python parent id": {id}, "Python id": {id}, "Ev Idx": {id}}}\n  }}'
)
LAUNCH = (
    '{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4711, "tid": 4711, '
    '"ts": {ts:.3f}, "dur": 4.5,\n'
    '    "args": {{"External id": {id}, "cbid": 211, "correlation": {id}}}\n  }}'
)
KERNEL = (
    '{{"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": {stream}, "ts": {ts:.3f}, "dur": 31.072,\n'
    '    "args": {{"External id": {id}, "queued": 0, "device": 0, "context": 1, "stream": {stream}, '
    '"correlation": {id}, "registers per thread": 168, "shared memory": 213016, "blocks per SM": 1.0, '
    '"warps per SM": 12.0, '
    '"grid": [132, 1, 1], "block": [384, 1, 1], "est. achieved occupancy %": 19}}\n  }}'
)
ARROWS = (
    '{{"ph": "s", "id": {id}, "pid": 4711, "tid": 4711, "ts": {ts:.3f}, "cat": "ac2g", "name": "ac2g"}},\n  '
    '{{"ph": "f", "id": {id}, "pid": 0, "tid": {stream}, "ts": {ts:.3f}, "cat": "ac2g", "name": "ac2g", "bp": "e"}}'
)
NAMES = (
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)


def generate(path: Path, size: float) -> int:
    """Write a trace of about `size` bytes; the number of its events."""
    written, count = 0, 0
    with path.open("w") as file:
        file.write('{\n  "schemaVersion": 1, "baseTimeNanoseconds": 1767189312000000000,\n  "traceEvents": [\n  ')
        number = 0
        while written < size:
            ts = 3743411222862.936 + 40.0 * number
            place = number % len(NAMES)
            parts = [
                FRAME.format(line=1700 + number % 50, ts=ts, id=number),
                FRAME.format(line=1760 + number % 50, ts=ts + 1, id=number),
                OPERATOR.format(
                    op=("mm", "add", "record_param_comms")[place], ts=ts + 2, id=number, m=1024 + number % 97
                ),
                LAUNCH.format(ts=ts + 4, id=number),
                KERNEL.format(kernel=NAMES[place], stream=(7, 7, 20)[place], ts=ts + 9, id=number),
                ARROWS.format(ts=ts + 4, id=number, stream=(7, 7, 20)[place]),
            ]
            text = ("" if number == 0 else ",\n  ") + ",\n  ".join(parts)
            file.write(text)
            written += len(text)
            count += 7
            number += 1
        file.write('\n  ], "traceName": "made.json"\n}\n')
    return count


def read(path: Path) -> None:
    """Read and sum up a file in this process; print what it took."""
    from moesim.traces.opening import read_timeline
    from moesim.traces.summary import summaries

    begun = time.perf_counter()
    table = read_timeline(path)
    middle = time.perf_counter()
    found = summaries(table)
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {
        "read_s": round(middle - begun, 2),
        "analysis_s": round(ended - middle, 2),
        "cpu_s": round(time.process_time(), 2),
        "peak_bytes": peak,
        "kept_events": len(table),
        "kernels": found[0].kernels,
    }
    print(json.dumps(told))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.json"
        count = generate(path, options.gigabytes * 1e9)
        found = subprocess.run(
            [sys.executable, __file__, "--read", str(path)], capture_output=True, text=True, check=True
        )
        print(f"{path.stat().st_size / 1e9:.2f} GB, {count:,} events: {found.stdout.strip()}")


if __name__ == "__main__":
    main()
