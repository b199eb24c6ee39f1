"""From a table to a release."""

from dpsieve.jobs.outlook import Preview
from dpsieve.jobs.plan import Plan, make_plan
from dpsieve.jobs.table import preview, release

__all__ = ["Plan", "Preview", "make_plan", "preview", "release"]
