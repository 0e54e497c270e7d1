"""``moesim trace``: its verbs on files alone and those that set files beside the model."""

from moesim.cli import trace_model
from moesim.cli.trace import app

trace_model.register(app)
