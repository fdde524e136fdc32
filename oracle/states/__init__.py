"""State families: what is state@n of a token sequence, and is this content equal to it?"""

from stateat.kernels.backends import Unavailable
from stateat.oracle.states.digest import DigestFamily
from stateat.oracle.states.families import StateFamily, family
from stateat.oracle.states.numeric import Arithmetic, Numeric

__all__ = ["Arithmetic", "DigestFamily", "Numeric", "StateFamily", "Unavailable", "family"]
