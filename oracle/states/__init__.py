"""State families: what is state@n of a token sequence, and is this content equal to it?"""

from stateat.kernels.backends import Unavailable
from stateat.oracle.states.digest import Digest
from stateat.oracle.states.families import Family, family
from stateat.oracle.states.numeric import Arithmetic, Numeric

__all__ = ["Arithmetic", "Digest", "Family", "Numeric", "Unavailable", "family"]
