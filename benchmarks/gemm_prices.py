"""How long a million GEMM shapes take to price, over the time of as many square roots."""

import time

import numpy as np

from moesim.cost.from_spec import build_gpu
from moesim.cost.gemm import gemm_time
from moesim.spec import library
from moesim.workload.ops import Gemm

SHAPES = 1_000_000


def main() -> None:
    """Print one line."""
    gpu = build_gpu(library.get("gpus", "h100-sxm-80gb"))
    m, n, k = np.floor(10 ** np.random.default_rng(0).uniform(2, 4, (3, SHAPES)))
    gemm_time(Gemm(m, n, k), gpu)
    started = time.process_time()
    gemm_time(Gemm(m, n, k), gpu)
    priced = time.process_time() - started
    started = time.process_time()
    np.sqrt(m * n * k)
    rooted = time.process_time() - started
    print(f"{SHAPES:,} GEMM shapes on one core: {priced:.2f} s, {priced / rooted:.0f} times a square root each")


if __name__ == "__main__":
    main()
