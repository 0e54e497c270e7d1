"""Pipeline schedules, one a file; each registers an instance of `moesim.timeline.schedule.Schedule`."""

from moesim.base.registry import Registry
from moesim.timeline.schedule import Schedule
from moesim.timeline.user_schedule import read_schedule

schedules: Registry[Schedule] = Registry("pipeline schedule", package=__name__, entry_points="moesim.schedules")

FILE_SUFFIX = ".csv"


def find_schedule(name: str) -> Schedule:
    """Return a registered schedule by its name, or the one in a file by its path."""
    return read_schedule(name) if name.endswith(FILE_SUFFIX) else schedules.get(name)
