"""Pictures of frames: each is one function that takes a frame and a Matplotlib axis.

``timeline``, ``slot_life`` and ``blast_radius`` take the frames of one run (``Result.chunks``, ``.claims``,
``.findings``), ``rate``, ``heat_map`` and ``before_after`` the table of a sweep, a row a run. A point whose runs had no
hits is hollow and says so: nothing follows from it. Axes start at 0. Fonts can be read at 800 pixels for 8 inches.
"""

from stateat.sim.report.pictures.run_plots import blast_radius, slot_life, timeline
from stateat.sim.report.pictures.sweep_plots import before_after, heat_map, rate, sweep_picture

__all__ = ["before_after", "blast_radius", "heat_map", "rate", "slot_life", "sweep_picture", "timeline"]
