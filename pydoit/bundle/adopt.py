"""After a bundle was unpacked: finds the stages here that its entries stand in for, and says why others do not."""

from __future__ import annotations

from collections.abc import Iterator

from pydoit.bundle.adopted import Adoption, differences
from pydoit.bundle.index import PackedStage
from pydoit.bundle.unpack import Unpacked
from pydoit.resolve import Pins
from pydoit.results import Result
from pydoit.session import Options, Session


def adopt(unpacked: Unpacked) -> list[str]:
    """Let the bundle's entries stand in for stages of the workspace; a line for each that cannot."""
    pins = {name: Pins(recipe.arch) for name, recipe in unpacked.index.recipes.items()}
    session = Session(unpacked.workspace, Options(pins=pins))
    session.open(unpacked.index.recipes)
    lines = [str(error) for error in session.broken.values()]
    for recipe in session.loaded:
        lines += _adopt_recipe(session, unpacked, recipe)
        lines += _other_arch(unpacked, recipe)
    return lines


def _adopt_recipe(session: Session, unpacked: Unpacked, recipe: str) -> Iterator[str]:
    stages, builder = unpacked.index.recipes[recipe].stages, session.builder
    adoptions: dict[str, Adoption] = {}
    for stage in session.stages(recipe):
        packed, node = stages.get(stage), session.node(recipe, stage)
        found: Result | str | None
        if packed is None:
            found = session.examine(recipe, stage)
        elif unpacked.index.kind == "results" and not builder.lacks(node):
            continue  # it can be measured here: only what has the very same key is taken, and that is in the store
        else:
            found = _stand_in(session, unpacked, recipe, stage, packed, adoptions)
        if isinstance(found, str):
            yield found
        elif found is not None:
            builder.results[recipe, stage] = found
    session.adopted.add(recipe, adoptions)


def _stand_in(
    session: Session, unpacked: Unpacked, recipe: str, stage: str, packed: PackedStage, adoptions: dict[str, Adoption]
) -> Result | str:
    """The result that the entry gives the stage, or why it gives none."""
    node, entry = session.node(recipe, stage), unpacked.entries[packed.key]
    document, key = session.builder.identify(node)
    if document is None or key is None:
        return f"{recipe}: {stage} will run here: what it reads is not known yet"
    differing = differences(entry.document, document)
    if differing:
        shown = "; ".join(map(str, differing[:3])) + (f"; and {len(differing) - 3} more" if len(differing) > 3 else "")
        return f"{recipe}: {stage} of the bundle cannot be used here: {shown}"
    if packed.is_carried:
        adoptions[stage] = Adoption(key, entry)
    return session.builder.found(node, entry)


def _other_arch(unpacked: Unpacked, recipe: str) -> Iterator[str]:
    """`arch = "native"` may be another one here: then only a build with the lock's arch meets the bundle's stages."""
    session = Session(unpacked.workspace, Options())
    session.open([recipe])
    wanted = unpacked.index.recipes[recipe].arch
    if recipe in session.loaded and (here := session.loaded[recipe].target["arch"]) != wanted:
        yield f'{recipe}: is built for {wanted}, but `arch = "native"` is {here} here; build with --frozen, or name the arch'
