"""The names of `m_agent.runtime`, so that its programs run after changing the import roots."""

from labkit import durable
from labkit.durable import *  # noqa: F403

__all__ = list(durable.__all__)
