"""Two surroundings of a build that differ in everything that must not matter, and a copy of the workspace for each."""

from __future__ import annotations

import importlib.util
import os
import shutil
import site
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

COPIED_BYTES = 1 << 20
"""Files up to this size are copied, larger ones linked."""
DROPPED = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "LC_ALL", "TMPDIR")
AHEAD = "+400d"
LAUNCH = """\
import os, sys
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, cores[: int(sys.argv[1]) or None])
os.execv(sys.executable, [sys.executable, "-m", "doit", *sys.argv[2:]])
"""


@dataclass(frozen=True)
class Surroundings:
    """Where and how one of the two builds runs."""

    name: str
    folder: str
    """Path of the workspace below the scratch folder."""
    variables: Mapping[str, str]
    umask: int
    cores: int
    """Cores that it may use; 0 for all."""
    ahead: str = ""
    """By how much its clock is ahead, where libfaketime is installed."""


BOTH = (
    Surroundings("first", "one", {"TZ": "UTC", "LANG": "C.UTF-8", "PYTHONHASHSEED": "1"}, 0o022, 0),
    Surroundings(
        "second",
        "another/place/of/some/length",
        {"TZ": "Asia/Kathmandu", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "4242", "COLUMNS": "40"},
        0o077,
        1,
        AHEAD,
    ),
)


def varied(clock: Mapping[str, str]) -> str:
    """What the two builds differ in, for people."""
    return "folder, HOME, TZ, LANG, hash seed, umask, cores" + (", clock" if clock else "")


def command(surroundings: Surroundings, arguments: list[str]) -> list[str]:
    """The command line of one of the builds."""
    return [sys.executable, "-c", LAUNCH, str(surroundings.cores), *arguments]


def environment(surroundings: Surroundings, base: Path, workspace: Path, clock: Mapping[str, str]) -> dict[str, str]:
    """Its environment; HOME and the store are empty folders of its own below `base`."""
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    home = {} if site.ENABLE_USER_SITE and Path(site.getusersitepackages()).is_dir() else {"HOME": str(base / "home")}
    roots = [str(workspace), *os.environ.get("MODELBUILD_ROOTS", "").split(os.pathsep)]
    faked = {**clock, "FAKETIME": surroundings.ahead} if surroundings.ahead and clock else {}
    return {
        **kept, **home, **faked, **surroundings.variables,
        "MODELBUILD_CACHE": str(base / "store"),
        "MODELBUILD_ROOTS": os.pathsep.join(filter(None, roots)),
    }  # fmt: skip


def fake_clock(kinds: Collection[str]) -> dict[str, str]:
    """Variables that put libfaketime into a process; nothing where it is not installed, or for targets other than CPUs.

    CUDA 13's cicc waits for ever when libfaketime 0.9.10 is loaded into it.
    """
    if {*kinds} != {"cpu"}:
        return {}
    found = [*Path("/usr/lib").glob("**/faketime/libfaketime.so.1")]
    spec = importlib.util.find_spec("libfaketime")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        found += Path(place).glob("**/libfaketime.so.1")
    return {"LD_PRELOAD": str(found[0]), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"} if found else {}


def copy_workspace(root: Path, left_out: tuple[Path, ...], target: Path) -> None:
    """Lay the workspace's files into `target`; hidden ones, virtual environments and `left_out` stay behind."""
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if _is_copied(here / name, left_out))
        place = target / here.relative_to(root)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = here / name
            if path.is_symlink() or path.stat().st_size > COPIED_BYTES:
                (place / name).symlink_to(path.resolve())
            else:
                shutil.copyfile(path, place / name)


def _is_copied(folder: Path, left_out: tuple[Path, ...]) -> bool:
    hidden = folder.name.startswith(".") or folder.name in ("__pycache__", "node_modules")
    return not hidden and folder not in left_out and not (folder / "pyvenv.cfg").exists()
