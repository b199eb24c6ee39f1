"""Collection from clients by sample-and-threshold: plans, invitations, and the bounds of the paper to compare with."""

from dpsieve.federated.invitations import Invitation, invite_for_reports, invite_for_sample
from dpsieve.federated.paper import lemma_3_delta, theorem_2_delta
from dpsieve.federated.plan import Plan, plan

__all__ = [
    "Invitation",
    "Plan",
    "invite_for_reports",
    "invite_for_sample",
    "lemma_3_delta",
    "plan",
    "theorem_2_delta",
]
