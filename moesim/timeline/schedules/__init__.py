"""Pipeline schedules, one a file; each registers an instance of `moesim.timeline.schedule.Schedule`."""

from moesim.base.registry import Registry
from moesim.timeline.schedule import Schedule

schedules: Registry[Schedule] = Registry("pipeline schedule", package=__name__, entry_points="moesim.schedules")
