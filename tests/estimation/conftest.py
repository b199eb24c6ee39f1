"""Channels to estimate from."""

from helpers.wobbly_channels import *  # noqa: F403
