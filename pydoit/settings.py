"""The values of modelbuild.toml and of the environment beside it, read without pydantic where the file is plain."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydoit.errors import RecipeError, UserError
from pydoit.loading import Layer
from pydoit.nearest import nearest

FILE_NAME = "modelbuild.toml"
MAX_SIZE = r"^\d+(\.\d+)?(MB|GB|TB)$"
PUBLIC_KEY = r"^([0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=)$"
REMOTE = re.compile(r"file:///[^?#\n]+|(s3|gs|gcs|az|abfs|https?)://[^\s/?#:@]+(:\d+|@[^\s/?#:@]+)?(/[^\s?#@]*)?")
MODES = ("read", "read-write")
EXECUTORS = ("local", "ray")
TRACKER = r"[A-Za-z0-9._-]+:\d{1,5}"
TRACKER_KEY = r"[A-Za-z0-9._-]+"
"""TVM splits keys at colons and blanks."""
ADDRESS = r"auto|(ray://)?[A-Za-z0-9._-]+:\d{1,5}"


@dataclass(frozen=True)
class RemoteSettings:
    """The remote cache as modelbuild.toml and the environment give it."""

    url: str = ""
    """Empty when there is none."""
    mode: str = "read"
    trusted_keys: tuple[str, ...] = ()
    timeout_seconds: float = 5.0

    @property
    def writes(self) -> bool:
        """Whether builds send what they made; HTTP is read-only."""
        return self.mode == "read-write" and not self.url.startswith("http")


@dataclass(frozen=True)
class ExecutorSettings:
    """Where stages run."""

    kind: str = "local"
    address: str = "auto"
    tracker: str = ""
    """host:port of TVM's RPC tracker; empty when candidates are measured here."""
    tracker_key: str = ""
    """Key of the servers that measure; empty for the recipe's arch."""


@dataclass(frozen=True)
class Settings:
    """The values of modelbuild.toml."""

    default: tuple[str, ...] = ()
    recipes: str = "recipes"
    artifacts: str = "artifacts"
    cache_path: str | None = None
    cache_max_size: str = "50GB"
    remote: RemoteSettings = RemoteSettings()
    executor: ExecutorSettings = ExecutorSettings()
    peers: str = ""
    """File with measurements of other engines; empty when there is none."""


def with_environment(settings: RemoteSettings) -> RemoteSettings:
    """The settings with what MODELBUILD_REMOTE and MODELBUILD_REMOTE_MODE say; `UserError` for what they may not say."""
    url, mode = os.environ.get("MODELBUILD_REMOTE", settings.url), os.environ.get("MODELBUILD_REMOTE_MODE") or settings.mode
    url = "" if url == "off" else url
    try:
        check_remote(url)
    except ValueError as error:
        raise UserError(f"MODELBUILD_REMOTE: {error}") from None
    if mode not in MODES:
        raise UserError(f"MODELBUILD_REMOTE_MODE: {mode!r} is unknown; {nearest(mode, list(MODES))}")
    return replace(settings, url=url, mode=mode)


def tracker_of(settings: ExecutorSettings) -> ExecutorSettings:
    """The settings with what MODELBUILD_TRACKER and MODELBUILD_TRACKER_KEY say; `UserError` for what they may not say."""
    tracker = os.environ.get("MODELBUILD_TRACKER", settings.tracker)
    tracker, key = "" if tracker == "off" else tracker, os.environ.get("MODELBUILD_TRACKER_KEY") or settings.tracker_key
    if tracker and not re.fullmatch(TRACKER, tracker):
        raise UserError(f"MODELBUILD_TRACKER: {tracker!r} is no address; write host:port, or off")
    if key and not re.fullmatch(TRACKER_KEY, key):
        raise UserError(f"MODELBUILD_TRACKER_KEY: {key!r} is no key; it has letters, digits, dots, dashes and underscores")
    return replace(settings, tracker=tracker, tracker_key=key)


def check_remote(url: str) -> None:
    """`ValueError` unless `url` is empty or names a place that a remote cache can have."""
    if url and not REMOTE.fullmatch(url):
        shown = f"{url.partition('://')[0][:20]}://..."  # the rest may hold a password
        raise ValueError(f"{shown!r} is no remote cache; write s3://bucket/prefix or the like, without credentials")


def read_settings(values: dict[str, Any], text: str) -> Settings:
    """The values of modelbuild.toml; `RecipeError` for what it may not say.

    A plain file is taken as it is, without loading pydantic; any other goes through the typed form.
    """
    default, cache, report = values.get("default", []), values.get("cache", {}), values.get("report", {})
    executor = values.get("executor", {})
    known = {"schema", "default", "cache", "report", "executor"}
    is_plain = set(values) <= known and values.get("schema") == 1 and isinstance(default, list) and _is_plain_report(report)
    is_plain = is_plain and _is_plain_executor(executor)
    if is_plain and all(isinstance(name, str) for name in default) and _is_plain_cache(cache):
        return _made(Settings(tuple(default)), cache, report, executor)
    from pydantic import ValidationError

    from pydoit.validation import faults_of
    from pydoit.workspace_file import WorkspaceFile

    try:
        parsed = WorkspaceFile.model_validate(values)
    except ValidationError as error:
        raise RecipeError(*faults_of(error, WorkspaceFile, Layer(FILE_NAME, values, text).where)) from None
    sections = (parsed.cache, parsed.report, parsed.executor)
    own = Settings(parsed.default, parsed.recipes, parsed.artifacts)
    return _made(own, *(section.model_dump(exclude_unset=True) for section in sections))


def _made(own: Settings, cache: dict[str, Any], report: dict[str, Any], executor: dict[str, Any]) -> Settings:
    """Settings of checked values; `own` holds those outside of sections."""
    remote = RemoteSettings(
        url=cache.get("remote") or "",
        mode=cache.get("mode", "read"),
        trusted_keys=tuple(cache.get("trusted_keys", ())),
        timeout_seconds=float(cache.get("timeout_seconds", 5.0)),
    )
    return replace(
        own, cache_path=cache.get("path"), cache_max_size=cache.get("max_size", "50GB"), remote=remote,
        executor=ExecutorSettings(**executor), peers=report.get("peers") or "",
    )  # fmt: skip


def _is_plain_executor(executor: Any) -> bool:
    """Whether [executor] satisfies its typed form, as far as that can be seen without it."""
    checks: dict[str, Callable[[Any], bool]] = {
        "kind": lambda value: value in EXECUTORS,
        "address": lambda value: isinstance(value, str) and re.fullmatch(ADDRESS, value) is not None,
        "tracker": lambda value: isinstance(value, str) and re.fullmatch(TRACKER, value) is not None,
        "tracker_key": lambda value: isinstance(value, str) and re.fullmatch(TRACKER_KEY, value) is not None,
    }
    return isinstance(executor, dict) and all(name in checks and checks[name](value) for name, value in executor.items())


def _is_plain_report(report: Any) -> bool:
    """Whether [report] satisfies its typed form, as far as that can be seen without it."""
    return isinstance(report, dict) and all(
        key == "peers" and isinstance(value, str) and value for key, value in report.items()
    )


def _is_plain_cache(cache: Any) -> bool:
    """Whether [cache] satisfies its typed form, as far as that can be seen without it: what is not plain is checked there."""
    checks: dict[str, Callable[[Any], bool]] = {
        "path": lambda value: isinstance(value, str),
        "max_size": lambda value: isinstance(value, str) and re.search(MAX_SIZE, value) is not None,
        "remote": lambda value: isinstance(value, str) and REMOTE.fullmatch(value) is not None,
        "mode": lambda value: value in MODES,
        "trusted_keys": lambda value: (
            isinstance(value, list) and all(isinstance(key, str) and re.search(PUBLIC_KEY, key) for key in value)
        ),
        "timeout_seconds": lambda value: isinstance(value, (int, float)) and value is not True and 0 < value <= 300,
    }
    return isinstance(cache, dict) and all(name in checks and checks[name](value) for name, value in cache.items())
