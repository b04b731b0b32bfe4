"""A real S3 server on loopback: two machines, a reader that trusts a public key, damage on the server, HTTP."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import boto3
import pytest
from conftest import TestWorkspace, make_workspace
from moto.server import ThreadedMotoServer

from pydoit.signing_keys import public_key
from pydoit.stages import STAGES

KEY = bytes(range(32))
RESTORED = {**dict.fromkeys(STAGES, "restored"), "fetch": "hit"}
FILES = ("lib.so", "weights/model.safetensors", "manifest.json")


@dataclass
class Shared:
    """A bucket with what one machine has built, and how to make more machines."""

    endpoint: str
    first: TestWorkspace
    folder: Path
    machines: int = 0

    def machine(self) -> TestWorkspace:
        """Another workspace with a store of its own that trusts the first machine's key."""
        self.machines += 1
        machine = make_workspace(self.folder / f"machine{self.machines}")
        (machine.root.parent / "home").mkdir()
        machine.write("modelbuild.toml", SETTINGS)
        return machine

    def run(self, machine: TestWorkspace, *arguments: str, **variables: str) -> Any:
        home = str(machine.root.parent / "home")
        return machine.doit(*arguments, **{"HOME": home, **environment(self.endpoint), **variables})

    def statuses(self, machine: TestWorkspace) -> dict[str, str]:
        return {stage["name"]: stage["status"] for stage in machine.report()["stages"]}

    def assert_same(self, machine: TestWorkspace) -> None:
        for name in FILES:
            ours, theirs = (item.root / "artifacts/tiny" / name for item in (self.first, machine))
            assert ours.read_bytes() == theirs.read_bytes(), name

    def objects(self) -> Any:
        return client(self.endpoint).list_objects_v2(Bucket="models").get("Contents", [])


SETTINGS = f"""\
schema = 1
default = ["tiny"]

[cache]
remote = "s3://models/team/cache"
trusted_keys = ["{public_key(KEY).hex()}"]
"""


def environment(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def client(endpoint: str) -> Any:
    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client(endpoint).create_bucket(Bucket="models")
    folder = tmp_path_factory.mktemp("s3")
    first = make_workspace(folder / "first")
    first.write("modelbuild.toml", SETTINGS)
    (folder / "first/home").mkdir()
    found = Shared(endpoint, first, folder)
    done = found.run(first, "build", MODELBUILD_REMOTE_MODE="read-write", MODELBUILD_SIGNING_KEY=KEY.hex())
    assert done.returncode == 0, done.stderr
    assert "sent 9 entries" in done.stderr
    yield found
    server.stop()


def test_a_second_machine_builds_wholly_from_the_cache(shared: Shared) -> None:
    second = shared.machine()
    plan = shared.run(second, "plan")
    assert plan.stdout.count("from the remote cache") == len(STAGES) - 1, plan.stdout + plan.stderr
    started = time.monotonic()
    done = shared.run(second, "build")
    assert time.monotonic() - started < 5
    assert done.returncode == 0, done.stderr
    assert "restored import, optimize" in done.stdout
    assert shared.statuses(second) == RESTORED
    shared.assert_same(second)
    assert shared.statuses(second) == {stage: plan_status(plan.stdout, stage) for stage in STAGES}
    assert second.report()["profile"] == shared.first.report()["profile"]


def plan_status(plan: str, stage: str) -> str:
    action = next(line.split()[2] for line in plan.splitlines() if line.split()[1] == stage)
    return {"restore": "restored"}.get(action, action)


def test_a_build_with_nothing_to_do_asks_nothing_and_loads_nothing(shared: Shared) -> None:
    code = (
        "import sys; sys.argv = ['doit', 'build']; from doit.doit_cmd import DoitMain\n"
        "status = DoitMain().run(['build'])\n"
        "heavy = {'fsspec', 's3fs', 'aiohttp', 'cryptography', 'pydantic', 'torch', 'tvm'} & set(sys.modules)\n"
        "print(status, sorted(heavy))"
    )
    variables = {
        **environment("http://127.0.0.1:1"),
        "MODELBUILD_SIGNING_KEY": KEY.hex(),
        "MODELBUILD_REMOTE_MODE": "read-write",
    }
    assert shared.first.doit("build", **variables).returncode == 0  # notes what is now a hit, and signs that anew
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=shared.first.root,
        env=shared.first.environment(**variables),
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "0 []", done.stdout + done.stderr


def test_readers_send_nothing_and_strangers_take_nothing(shared: Shared) -> None:
    before = len(shared.objects())
    stranger = shared.machine()
    stranger.edit("modelbuild.toml", public_key(KEY).hex(), public_key(bytes(32)).hex())
    plan = shared.run(stranger, "plan")
    assert "import    run" in plan.stdout
    assert "restore" not in plan.stdout
    assert len(shared.objects()) == before


def test_pull_then_push_elsewhere(shared: Shared) -> None:
    machine = shared.machine()
    pulled = shared.run(machine, "cache", "pull", "tiny")
    assert (pulled.returncode, pulled.stdout.split()[:2]) == (0, ["fetched_entries", "9"]), pulled.stderr
    assert shared.run(machine, "cache", "pull").stdout.split()[:2] == ["fetched_entries", "0"]
    assert shared.run(machine, "build", MODELBUILD_REMOTE="off").returncode == 0
    elsewhere = {"MODELBUILD_REMOTE": f"file://{shared.folder}/folder", "MODELBUILD_CACHE_SECRET": "a secret of this test"}
    refused = shared.run(machine, "cache", "push", MODELBUILD_REMOTE=elsewhere["MODELBUILD_REMOTE"])
    assert refused.returncode == 1
    assert "MODELBUILD_SIGNING_KEY" in refused.stderr
    pushed = shared.run(machine, "cache", "push", **elsewhere)
    assert (pulled.returncode, pushed.stdout.split()[:2]) == (0, ["sent_entries", "9"]), pushed.stderr
    assert shared.run(machine, "cache", "push", "tiny", **elsewhere).stdout.split()[:2] == ["sent_entries", "0"]


def test_http_is_read_only(shared: Shared) -> None:
    handler = partial(QuietHandler, directory=str(shared.folder / "folder"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        web = {
            "MODELBUILD_REMOTE": f"http://127.0.0.1:{server.server_address[1]}",
            "MODELBUILD_CACHE_SECRET": "a secret of this test",
        }
        machine = shared.machine()
        assert shared.run(machine, "build", **web, MODELBUILD_REMOTE_MODE="read-write").returncode == 0
        assert shared.statuses(machine) == RESTORED
        shared.assert_same(machine)
        assert "read-only" in shared.run(machine, "cache", "push", **web).stderr
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    """Knows no ranges: it answers each with the whole file."""

    def log_message(self, *_: Any) -> None:
        pass


def test_damage_on_the_server_costs_the_stage_that_it_hit(shared: Shared) -> None:
    s3, machine = client(shared.endpoint), shared.machine()
    library = shared.first.report()["library"]["sha256"]
    name = f"team/cache/blobs/{library[:2]}/{library}"
    good = s3.get_object(Bucket="models", Key=name)["Body"].read()
    s3.put_object(Bucket="models", Key=name, Body=good[:-1] + bytes([good[-1] ^ 1]))
    done = shared.run(machine, "build", MODELBUILD_REMOTE_MODE="read-write", MODELBUILD_SIGNING_KEY=KEY.hex())
    assert done.returncode == 0, done.stderr
    assert "other bytes" in done.stderr
    assert shared.statuses(machine) == {**RESTORED, "compile": "built"}
    shared.assert_same(machine)
    assert s3.get_object(Bucket="models", Key=name)["Body"].read() == good  # sent anew


@pytest.mark.parametrize("arguments", [("cache", "pull"), ("plan",)])
def test_a_dead_server_costs_seconds(shared: Shared, arguments: tuple[str, ...]) -> None:
    machine = shared.machine()
    started = time.monotonic()
    done = shared.run(machine, *arguments, AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert time.monotonic() - started < 8
    assert done.stderr.count("is off for this command") == 1
    assert done.returncode == (1 if arguments[0] == "cache" else 0)


def test_what_is_wrong_with_a_remote_is_told(shared: Shared) -> None:
    machine = shared.machine()
    machine.edit("modelbuild.toml", "s3://models", "s3://name:password@models")
    done = shared.run(machine, "plan")
    assert done.returncode == 2
    assert "modelbuild.toml:5: cache.remote" in done.stderr
    assert "password" not in done.stderr
    machine.write("modelbuild.toml", 'schema = 1\ndefault = ["tiny"]\n')
    assert "no remote cache is configured" in shared.run(machine, "cache", "push").stderr
    assert shared.run(machine, "plan", MODELBUILD_REMOTE="ftp://x").returncode == 2
    assert "read-write" in shared.run(machine, "plan", MODELBUILD_REMOTE="s3://x/y", MODELBUILD_REMOTE_MODE="write").stderr
