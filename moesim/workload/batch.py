"""The tokens that one rank sees in one micro-batch."""

from dataclasses import dataclass

from moesim.base.numeric import Numeric
from moesim.workload.mesh import Mesh


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch on one rank, under sequence parallelism.

    Attributes
    ----------
    sequences
        Sequences in the micro-batch, b. [-]
    sequence_length
        Tokens of a sequence, s. [-]
    mesh
        Parallel degrees.
    """

    sequences: Numeric
    sequence_length: int
    mesh: Mesh

    @property
    def tokens(self) -> Numeric:
        """Tokens that one tensor-parallel group works on, b s / cp. [-]"""
        return self.sequences * self.sequence_length / self.mesh.cp

    @property
    def local_tokens(self) -> Numeric:
        """Tokens held by one rank between tensor-parallel regions, b s / (cp tp). [-]"""
        return self.tokens / self.mesh.tp
