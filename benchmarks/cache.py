"""Times the caches: a store of 100,000 entries, and a second machine that takes all it builds from an S3 server on loopback."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from moto.server import ThreadedMotoServer

from pydoit.keys import canonical, digest_of
from pydoit.store import Blob, Entry, Store, encode_entry

ROOT = Path(__file__).parents[1]
DOCUMENT_BYTES = 4000
Row = dict[str, object]


def fill(store: Store, entries: int) -> int:
    """Add entries of two small blobs each, every tenth blob shared; returns the blobs' bytes.

    Written without the store's care for power cuts, which would take an hour.
    """
    draw = random.Random(0)
    shared = [_blob(store, draw.randbytes(64)) for _ in range(entries // 10)]
    total = 64 * len(shared)
    now = time.time()
    for number in range(entries):
        document = {"number": number, "padding": draw.randbytes(DOCUMENT_BYTES // 2).hex()}
        own = _blob(store, draw.randbytes(64))
        total += 64
        outputs = {"lib.so": own, "spec.json": draw.choice(shared)}
        entry = Entry(digest_of(document), "compile", document, outputs, {"x": 1}, 1.0)
        path = store.entry_path(entry.key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(canonical(encode_entry(entry)))
        os.utime(path, (now - 10_000_000 + 50 * number,) * 2)
    return total


def _blob(store: Store, data: bytes) -> Blob:
    import hashlib

    sha256 = hashlib.sha256(data).hexdigest()
    path = store.blob_path(sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Blob(sha256, len(data))


def doit(workspace: Path, cache: Path, *arguments: str, **variables: str) -> tuple[float, str]:
    """Run doit; wall seconds of the whole process and what it printed."""
    environment = {**os.environ, "MODELBUILD_CACHE": str(cache), **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "doit", *arguments], cwd=workspace, env=environment, check=True,
                          capture_output=True, text=True)  # fmt: skip
    return time.perf_counter() - started, done.stdout


def copy_workspace(folder: Path) -> Path:
    """The checked-in recipes in a folder of their own."""
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "recipes", folder / "recipes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "modelbuild.toml", folder)
    (folder / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks/peers.json", folder / "benchmarks")
    return folder


def row(name: str, seconds: float, bar: float, **more: object) -> Row:
    return {"name": name, "seconds": round(seconds, 2), "bar_s": bar, **more}


def many_entries(workspace: Path, cache: Path, entries: int, recipe: str) -> list[Row]:
    """stats, a build with nothing to do, and gc, over a store of so many entries and those of the recipe that was built."""
    total = fill(Store(cache), entries)
    rows = [row("stats", *_fastest(workspace, cache, "cache", "stats"), 2.0)]
    rows.append(row("build, nothing to do", *_fastest(workspace, cache, "build", recipe), 0.5))
    seconds, _ = doit(workspace, cache, "cache", "gc", "--max-size", "1TB")
    rows.append(row("gc, nothing to remove", seconds, 30.0))
    keep = _bytes_of(cache) - total / 2
    seconds, text = doit(workspace, cache, "cache", "gc", "--max-size", f"{keep / 1e6}MB", "--format", "json")
    rows.append(row("gc, half goes", seconds, 30.0, **json.loads(text)))
    rows.append(row("build after gc", doit(workspace, cache, "build", recipe)[0], 0.5))
    return rows


def _fastest(workspace: Path, cache: Path, *arguments: str) -> tuple[float]:
    return (sorted(doit(workspace, cache, *arguments)[0] for _ in range(5))[2],)


def _bytes_of(cache: Path) -> int:
    return sum(path.stat().st_size for path in (cache / "blobs").glob("*/*"))


def second_machine(folder: Path, recipe: str) -> list[Row]:
    """Build on one machine, then on another one (HOME, workspace, store) from what the first has sent."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        variables = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_DEFAULT_REGION": "us-east-1", "MODELBUILD_REMOTE": "s3://models/cache",
            "MODELBUILD_REMOTE_MODE": "read-write", "MODELBUILD_CACHE_SECRET": "a secret of the benchmark",
        }  # fmt: skip
        _make_bucket(variables["AWS_ENDPOINT_URL"])
        rows = []
        for name, bar in (("cold build that sends", 0.0), ("second machine", 5.0)):
            place = folder / name.replace(" ", "-")
            workspace = copy_workspace(place / "workspace")
            (place / "home").mkdir()
            seconds, text = doit(workspace, place / "cache", "build", recipe, HOME=str(place / "home"), **variables)
            rows.append(row(f"{recipe}: {name}", seconds, bar, bytes=_bytes_of(place / "cache"), said=text.strip()[:60]))
        return rows
    finally:
        server.stop()


def _make_bucket(endpoint: str) -> None:
    import boto3

    boto3.client("s3", endpoint_url=endpoint, aws_access_key_id="x", aws_secret_access_key="x",
                 region_name="us-east-1").create_bucket(Bucket="models")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--recipe", default="opennsfw")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="modelbuild-bench-") as text:
        rows = second_machine(Path(text), arguments.recipe)
        second = Path(text) / "second-machine"
        rows += many_entries(second / "workspace", second / "cache", arguments.entries, arguments.recipe)
    for item in rows:
        more = {name: value for name, value in item.items() if name not in ("name", "seconds", "bar_s")}
        print(f"{item['name']:<32} {item['seconds']:>8} s  asked for <= {item['bar_s']} s  {more or ''}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
