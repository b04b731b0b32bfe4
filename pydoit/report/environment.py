"""What a build ran on, for its report: versions and hardware, no host name, no path."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Any

from pydoit import tools
from pydoit.lockfile.observe import toolchain
from pydoit.nodes import Node


def make_environment(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Python, system, hardware, and the tools that are in the action keys of a recipe."""
    return {
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": _system(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "CPU": tools.cpu_name(),
        "cores in use": len(os.sched_getaffinity(0)),
        "GPU": tools.gpu_names(),
        "tools": dict(sorted(toolchain(nodes).items())),
        "variables": tools.keyed_environment(),
    }


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()
