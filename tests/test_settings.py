"""modelbuild.toml read without pydantic says the same as its typed form; what the environment says wins."""

from __future__ import annotations

from typing import Any

import pytest
import tomli

from pydoit import settings
from pydoit.errors import RecipeError, UserError
from pydoit.settings import ExecutorSettings, RemoteSettings, read_settings, tracker_of, with_environment

HEX, BASE64 = "ab" * 32, "q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k="

GOOD = [
    "",
    'path = "/x"\nmax_size = "1.5TB"',
    f'remote = "s3://bucket/prefix"\nmode = "read-write"\ntrusted_keys = ["{HEX}", "{BASE64}"]\ntimeout_seconds = 2',
    'remote = "file:///a folder/@here"',
    'remote = "abfs://box@account.dfs.core.windows.net/x"',
    'remote = "https://host:8443/x"\ntimeout_seconds = 0.5',
]
BAD = [
    ("max_size = 5", "cache.max_size"),
    ('remote = "ftp://x/y"', "cache.remote"),
    ('remote = "s3://user:password@bucket/x"', "cache.remote"),
    ('remote = "https://host/x?token=1"', "cache.remote"),
    ('remote = "bucket/prefix"', "cache.remote"),
    ('mode = "write"', "cache.mode"),
    ('trusted_keys = ["abc"]', "cache.trusted_keys"),
    (f'trusted_keys = "{HEX}"', "cache.trusted_keys"),
    ("timeout_seconds = 0", "cache.timeout_seconds"),
    ("timeout_seconds = nan", "cache.timeout_seconds"),
    ("timeout_seconds = true", "cache.timeout_seconds"),
    ('remotes = "s3://x"', "did you mean"),
]


def read(cache: str) -> Any:
    text = f'schema = 1\ndefault = ["a"]\n[cache]\n{cache}\n'
    return read_settings(tomli.loads(text), text)


@pytest.mark.parametrize("cache", GOOD)
def test_both_ways_of_reading_say_the_same(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = read(cache)
    monkeypatch.setattr(settings, "_is_plain_cache", lambda _: False)
    assert read(cache) == quick


@pytest.mark.parametrize(("cache", "what"), BAD)
def test_what_is_wrong_is_told_with_its_line(cache: str, what: str) -> None:
    with pytest.raises(RecipeError) as error:
        read(cache)
    assert str(error.value).startswith("modelbuild.toml:4: ")
    assert what in str(error.value)
    assert "password" not in str(error.value)


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    given = RemoteSettings(url="s3://a/b", timeout_seconds=1.0)
    assert with_environment(given) == given
    monkeypatch.setenv("MODELBUILD_REMOTE", "file:///x")
    monkeypatch.setenv("MODELBUILD_REMOTE_MODE", "read-write")
    assert with_environment(given) == RemoteSettings("file:///x", "read-write", (), 1.0)
    assert with_environment(given).writes
    for nothing in ("", "off"):
        monkeypatch.setenv("MODELBUILD_REMOTE", nothing)
        assert with_environment(given).url == ""
    monkeypatch.setenv("MODELBUILD_REMOTE", "http://x/y")
    assert not with_environment(given).writes
    monkeypatch.setenv("MODELBUILD_REMOTE", "x")
    with pytest.raises(UserError, match="MODELBUILD_REMOTE"):
        with_environment(given)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ('kind = "ray"\naddress = "head:6379"', "head:6379"),
        ('kind = "ray"\naddress = "ray://10.0.0.5:10001"', "ray://10.0.0.5:10001"),
        ('kind = "ray"', "auto"),
    ],
)
def test_executor(text: str, address: str) -> None:
    for more in ("", 'recipes = "recipes"\n'):  # read without the typed form, and with it
        written = f"schema = 1\n{more}[executor]\n{text}\n"
        found = read_settings(tomli.loads(written), written)
        assert found.executor == ExecutorSettings("ray", address)


@pytest.mark.parametrize(
    "text",
    [
        'kind = "slurm"',
        'tracker = "board"',
        'tracker_key = "a:b"',
        'address = "head"',
        'address = "ray://u:p@h:1"',
        "kind = 1",
        "cpus = 1",
    ],
)
def test_executors_that_are_none(text: str) -> None:
    written = f"schema = 1\n[executor]\n{text}\n"
    with pytest.raises(RecipeError, match=r"^modelbuild.toml:\d: executor"):
        read_settings(tomli.loads(written), written)


def test_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    for more in ("", 'recipes = "recipes"\n'):  # read without the typed form, and with it
        written = f'schema = 1\n{more}[executor]\ntracker = "lab:9190"\ntracker_key = "x86-64-v3"\n'
        found = read_settings(tomli.loads(written), written).executor
        assert found == ExecutorSettings("local", "auto", "lab:9190", "x86-64-v3")
    assert tracker_of(found) == found
    monkeypatch.setenv("MODELBUILD_TRACKER", "off")
    monkeypatch.setenv("MODELBUILD_TRACKER_KEY", "board")
    assert tracker_of(found) == ExecutorSettings(tracker_key="board")
    for name, value in (("MODELBUILD_TRACKER", "lab"), ("MODELBUILD_TRACKER_KEY", "a b")):
        monkeypatch.setenv(name, value)
        with pytest.raises(UserError, match=f"^{name}: "):
            tracker_of(found)
        monkeypatch.delenv(name)
