"""Channels to estimate from."""

from wobbly_channels import *  # noqa: F403
