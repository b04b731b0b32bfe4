"""Texts that language models are verified on, from what is installed anyway."""

from __future__ import annotations


def python_topics() -> str:
    """Python's own help topics, in the order of their names (`pydoc_data.topics`)."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))
