"""What modelbuild.toml may say; the typed form, loaded only when the quick look at the file does not suffice."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator

from pydoit.frozen import Frozen
from pydoit.settings import ADDRESS, MAX_SIZE, PUBLIC_KEY, TRACKER, TRACKER_KEY, check_remote


class Cache(Frozen):
    """[cache]: the store that workspaces share."""

    path: str | None = None
    """Folder of the store; the user's cache folder when left out. MODELBUILD_CACHE in the environment wins."""
    max_size: Annotated[str, Field(pattern=MAX_SIZE)] = "50GB"
    """Size to which `doit cache gc` shrinks the store."""
    remote: str | None = None
    """Cache that machines share: file://, s3://, gs://, az://, abfs://, http:// or https://, then bucket and prefix. Off when
    left out. MODELBUILD_REMOTE in the environment wins ("off" for none). Credentials come from the environment or the
    provider's own chain, never from here."""
    mode: Literal["read", "read-write"] = "read"
    """Whether builds also send what they made; HTTP is read-only. MODELBUILD_REMOTE_MODE in the environment wins."""
    trusted_keys: tuple[Annotated[str, Field(pattern=PUBLIC_KEY)], ...] = ()
    """Ed25519 public keys (32 bytes in hex or base64) whose entries are taken; `doit cache keygen` makes a pair. Entries
    signed with the MODELBUILD_SIGNING_KEY or MODELBUILD_CACHE_SECRET of the environment are taken too, all others are not."""
    timeout_seconds: Annotated[float, Field(gt=0, le=300, allow_inf_nan=False, strict=True)] = 5.0
    """How long one request may stand still, and how much time slow answers may cost a command, before it goes on without."""

    @field_validator("remote")
    @classmethod
    def _is_remote(cls, value: str | None) -> str | None:
        if value is not None:
            check_remote(value)
        return value


class Report(Frozen):
    """[report]: what the reports show beside a build's own figures."""

    peers: Annotated[str, Field(min_length=1)] | None = None
    """A JSON file of the workspace with measurements of other engines, as `benchmarks/cpu.py --json` writes it; none when left
    out."""


class Executor(Frozen):
    """[executor]: where stages run."""

    kind: Literal["local", "ray"] = "local"
    """local: on this machine. ray: on a Ray cluster, whose machines reach the remote cache, which must be read-write."""
    address: Annotated[str, Field(pattern=rf"^({ADDRESS})$")] = "auto"
    """The cluster: auto (one that runs here, or RAY_ADDRESS), HOST:PORT of its head, or ray://HOST:PORT."""
    tracker: Annotated[str, Field(pattern=rf"^({TRACKER})?$")] = ""
    """TVM's RPC tracker, HOST:PORT: `doit tune` compiles here and measures on a device that it gives; on this machine when left
    out. MODELBUILD_TRACKER in the environment wins ("off" for none)."""
    tracker_key: Annotated[str, Field(pattern=rf"^({TRACKER_KEY})?$")] = ""
    """Key under which the devices' servers are registered there; the recipe's arch when left out. MODELBUILD_TRACKER_KEY in the
    environment wins."""


class WorkspaceFile(Frozen):
    """modelbuild.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, protected_namespaces=())
    schema_: Literal[1] = Field(alias="schema")
    """Version of the format; 1."""
    default: tuple[str, ...] = ()
    """Recipes that `doit build` without names builds."""
    recipes: str = "recipes"
    """Folder of the recipes; its base/ folder holds fragments."""
    artifacts: str = "artifacts"
    """Folder of the outputs."""
    cache: Cache = Field(default_factory=lambda: Cache())
    """The store."""
    report: Report = Field(default_factory=lambda: Report())
    """What the reports show beside a build's own figures."""
    executor: Executor = Field(default_factory=lambda: Executor())
    """Where stages run."""
