"""Packs recipes: what was built here, or what was measured here, as one archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydoit.bundle.archive import write_archive
from pydoit.bundle.contents import Contents, add_build, add_results
from pydoit.bundle.index import Index, seal
from pydoit.remote.signing import read_trust
from pydoit.session import Session


@dataclass(frozen=True)
class Packed:
    """What went into a bundle."""

    recipes: dict[str, tuple[str, ...]]
    """Recipe -> the stages that need not run again."""
    files: int
    bytes: int
    is_signed: bool


def pack(session: Session, recipes: Sequence[str], path: Path, *, results: bool, weights: bool) -> Packed:
    """Write the bundle of loaded recipes to `path`; the same store and workspace give the same bytes."""
    trust = read_trust(session.workspace.remote.trusted_keys)
    contents = Contents(trust)
    with session.store.in_use():
        for recipe in recipes:
            if results:
                add_results(contents, session, recipe)
            else:
                add_build(contents, session, recipe, weights=weights)
        index = Index("results" if results else "build", contents.recipes, contents.files)
        write_archive(path, seal(index, trust), contents.files, contents.sources)
    return Packed(
        {
            name: tuple(stage for stage, item in recipe.stages.items() if item.is_carried)
            for name, recipe in index.recipes.items()
        },
        len(index.files),
        sum(member.bytes for member in index.files.values()),
        trust.can_sign,
    )
