"""Stages on other machines: a cluster runs them, their files go through the remote cache, and no disk is shared."""
