"""A real Ray cluster on this machine, whose workers have a store of their own; only the remote cache is shared."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import make_workspace

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A head with two CPUs; it ends with all that it started."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # its sockets' paths must be short
        environment = {**os.environ, "MODELBUILD_CACHE": str(tmp_path / "elsewhere"), "RAY_USAGE_STATS_ENABLED": "0"}
        ray = Path(sys.executable).with_name("ray")
        head = subprocess.Popen(
            [ray, "start", "--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=false",
             f"--temp-dir={folder}", "--node-ip-address=127.0.0.1", "--disable-usage-stats"],
            env=environment, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            for _ in range(120):
                time.sleep(0.5)
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
            yield f"127.0.0.1:{port}"
        finally:
            head.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                head.wait(5)
            with contextlib.suppress(ProcessLookupError):  # its servers and workers share its group, and may outlive it
                os.killpg(head.pid, signal.SIGKILL)
            head.wait()


def entries(store: Path) -> dict[str, Any]:
    """The entries of a store with one build in it, by stage."""
    found = [json.loads(path.read_bytes()) for path in store.glob("actions/*/*.json")]
    return {entry["stage"]: entry for entry in found}


def test_a_build_on_a_local_cluster(address: str, tmp_path: Path) -> None:
    workspace, alone = make_workspace(tmp_path / "a"), make_workspace(tmp_path / "b")
    settings = f'[executor]\nkind = "ray"\naddress = "{address}"\n\n[cache]\nremote = "file://{tmp_path}/remote"\nmode = "read-write"\n'
    workspace.write("modelbuild.toml", f'schema = 1\ndefault = ["tiny"]\n\n{settings}')
    done = workspace.doit("build", "tiny", "-n", "2", MODELBUILD_CACHE_SECRET="a secret of this test")
    assert done.returncode == 0, done.stdout + done.stderr
    reasons = {stage["name"]: stage["reason"] for stage in workspace.report()["stages"] if stage["name"] != "fetch"}
    assert all(reason.startswith("on the cluster: ") for reason in reasons.values()), reasons
    assert len(list((tmp_path / "elsewhere").glob("actions/*/*.json"))) == len(reasons)
    here = alone.doit("build", "tiny", "--stages", "compile,weights")  # what machines could make differently
    assert here.returncode == 0, here.stdout + here.stderr
    there = entries(tmp_path / "elsewhere")
    for stage in ("import", "optimize", "compile", "weights"):
        assert entries(alone.cache)[stage]["outputs"] == there[stage]["outputs"]
    again = workspace.doit("build", "tiny", MODELBUILD_CACHE_SECRET="a secret of this test")
    assert "tiny: up to date" in again.stdout
    workspace.write("modelbuild.toml", f'schema = 1\n\n[executor]\nkind = "ray"\naddress = "{address}"\n')
    refused = workspace.doit("build", "tiny")
    assert refused.returncode == 2
    assert 'needs a remote cache with mode = "read-write"' in refused.stderr
