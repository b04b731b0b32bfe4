"""What reruns after a change and what does not, with the reason that `doit why` gives; one workspace, step by step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TestWorkspace, make_workspace, write_weights

from pydoit.stages import STAGES

ALL_HIT = dict.fromkeys(STAGES, "hit")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> TestWorkspace:
    """A workspace whose recipe has been built; every test leaves it with the original recipe."""
    workspace = make_workspace(tmp_path_factory.mktemp("incremental"))
    statuses = workspace.build()
    assert statuses == {**dict.fromkeys(STAGES, "built"), "fetch": "hit"}
    return workspace


def ran(statuses: dict[str, str]) -> set[str]:
    return {stage for stage, status in statuses.items() if status == "built"}


def why(workspace: TestWorkspace, stage: str) -> str:
    shown = workspace.doit("why", "tiny", stage)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def planned(workspace: TestWorkspace) -> dict[str, str]:
    """stage -> action of the dry run."""
    shown = workspace.doit("build", "tiny", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    return {line.split()[1]: line.split()[2] for line in shown.stdout.splitlines() if line.startswith("tiny: ")
            and line.split()[1] in STAGES}  # fmt: skip


def test_a_second_build_is_all_hits_and_loads_nothing_heavy(built: TestWorkspace) -> None:
    assert built.build() == ALL_HIT
    code = (
        "import sys; sys.argv = ['doit', 'build', 'tiny']; from doit.doit_cmd import DoitMain\n"
        "status = DoitMain().run(['build', 'tiny'])\n"
        "heavy = {'torch', 'tvm', 'triton', 'transformers', 'numpy', 'onnx', 'pydantic', 'jinja2'} & set(sys.modules)\n"
        "print(status, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=built.root, env=built.environment(), capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []", done.stdout + done.stderr


def test_it_works_from_any_folder_of_the_workspace(built: TestWorkspace) -> None:
    done = built.doit("build", "tiny", cwd="recipes")
    assert done.returncode == 0
    assert "up to date" in done.stdout


def test_a_dry_run_says_no_more_than_the_plan(built: TestWorkspace) -> None:
    built.edit("recipes/tiny.toml", "repeat = 3", "repeat = 7")
    dry, plan = built.doit("build", "tiny", "--dry-run"), built.doit("plan", "tiny")
    assert (dry.returncode, dry.stdout) == (plan.returncode, plan.stdout)
    assert "up to date" not in dry.stdout
    built.edit("recipes/tiny.toml", "repeat = 7", "repeat = 3")


def test_verify_alone(built: TestWorkspace) -> None:
    built.edit("recipes/tiny.toml", "samples = 2", "samples = 3")
    assert planned(built) == {**dict.fromkeys(STAGES, "hit"), "verify": "run"}
    assert "config.samples: 2 -> 3" in why(built, "verify")
    assert "up to date" in why(built, "compile")
    assert ran(built.build()) == {"verify"}
    assert built.report()["verify"]["samples"] == 3
    assert "last built because config.samples: 2 -> 3" in why(built, "verify")
    built.edit("recipes/tiny.toml", "samples = 3", "samples = 2")
    assert built.build() == ALL_HIT  # A -> B -> A


def test_pass_order_reruns_from_optimize(built: TestWorkspace) -> None:
    order = '[passes]\norder = ["LegalizeOps", "RewriteDataflowReshape"]'
    built.edit("recipes/tiny.toml", '[passes]\npreset = "O1"', order)
    assert planned(built)["optimize"] == "run"
    assert planned(built)["compile"] == "depends"
    assert "config.passes" in why(built, "optimize")
    assert "LegalizeOps" in why(built, "optimize")
    statuses = built.build()
    assert {"optimize", "compile", "verify", "profile"} <= ran(statuses)
    assert (statuses["fetch"], statuses["import"]) == ("hit", "hit")
    built.edit("recipes/tiny.toml", order, '[passes]\npreset = "O1"')
    statuses = built.build()
    assert statuses == {**ALL_HIT, "package": "restored"}  # the artifact folder held B


def test_comments_and_order_do_not_matter(built: TestWorkspace) -> None:
    path = built.root / "recipes/tiny.toml"
    before = path.read_text()
    sections = before.split("\n\n")
    path.write_text("# a comment\n" + "\n\n".join([sections[0], *reversed(sections[1:])]) + "\n# end\n")
    assert path.read_text() != before
    assert planned(built) == ALL_HIT
    assert built.build() == ALL_HIT
    path.write_text(before)


def test_touching_a_file_is_a_hit(built: TestWorkspace) -> None:
    for name in ("recipes/tiny.toml", "recipes/tiny_net.py", "recipes/parts.py", "models/tiny.safetensors"):
        os.utime(built.root / name)
    assert built.build() == ALL_HIT


def test_a_weight_byte_reruns_from_import_and_recompiles_nothing(built: TestWorkspace) -> None:
    path = built.root / "models/tiny.safetensors"
    data = bytearray(path.read_bytes())
    data[-2] ^= 0x40
    path.write_bytes(data)
    assert planned(built)["import"] == "run"
    assert "inputs.fetch.model/tiny.safetensors" in why(built, "import")
    statuses = built.build()
    assert ran(statuses) - {"fetch"} == {"import", "weights", "verify", "profile", "package"}
    assert (statuses["optimize"], statuses["compile"]) == ("hit", "hit")  # early cutoff
    write_weights(path)
    assert built.build() == {**ALL_HIT, "package": "restored"}


def test_code_that_the_factory_imports_is_part_of_the_key(built: TestWorkspace) -> None:
    built.edit("recipes/parts.py", "nn.ReLU()", "nn.ReLU(inplace=False)")
    assert "modules.recipes.tiny_net.recipes/parts.py" in why(built, "import")
    assert ran(built.build()) == {"import", "verify"}  # the same module comes out: nothing after it runs
    built.edit("recipes/parts.py", "nn.ReLU(inplace=False)", "nn.ReLU()")
    assert built.build() == ALL_HIT


def test_two_recipes_share_their_import(built: TestWorkspace) -> None:
    recipe = (built.root / "recipes/tiny.toml").read_text()
    built.write("recipes/second.toml", recipe.replace("repeat = 3", "repeat = 4"))
    statuses = built.build("second")
    assert ran(statuses) == {"profile", "package"}
    assert built.build() == ALL_HIT


def test_variants_and_sets(built: TestWorkspace) -> None:
    with (built.root / "recipes/tiny.toml").open("a") as file:
        file.write("\n[variant.long.profile]\nrepeat = 5\n")
    assert ran(built.build("tiny@long")) == {"profile", "package"}
    assert built.report("tiny@long")["profile"]["latency_ms"]["n"] == 5
    assert (built.root / "artifacts/tiny@long/lib.so").is_file()
    assert ran(built.build("tiny", "--set", "profile.repeat=6")) == {"profile"}
    assert built.build() == ALL_HIT


def test_a_gate_is_looked_at_without_running_anything(built: TestWorkspace) -> None:
    before = (built.root / "recipes/tiny.toml").read_text()
    built.write("recipes/tiny.toml", before + '\n[[gate]]\nmetric = "profile.latency_ms.median"\nmax = 0.0\n')
    done = built.doit("build", "tiny")
    assert done.returncode == 1
    assert "gate: profile.latency_ms.median is" in done.stdout
    report = built.report()
    assert report["library"] is None
    assert [stage["status"] for stage in report["stages"]] == ["hit"] * (len(STAGES) - 1) + ["failed"]
    built.write("recipes/tiny.toml", before)
    assert built.build() == ALL_HIT


def test_a_failed_verification_publishes_nothing(built: TestWorkspace) -> None:
    built.edit("recipes/tiny.toml", "samples = 2", "samples = 2\ntolerance = { max_abs = 0.0, cosine = 1.0 }")
    manifest = (built.root / "artifacts/tiny/manifest.json").stat().st_mtime_ns
    done = built.doit("build", "tiny")
    assert done.returncode == 1
    assert "verify failed" in done.stdout
    assert "max_abs" in done.stdout
    assert built.report()["verify"]["passed"] is False
    assert (built.root / "artifacts/tiny/manifest.json").stat().st_mtime_ns == manifest
    built.edit("recipes/tiny.toml", "\ntolerance = { max_abs = 0.0, cosine = 1.0 }", "")
    assert built.build() == ALL_HIT


def test_a_lost_artifact_is_restored(built: TestWorkspace) -> None:
    (built.root / "artifacts/tiny/lib.so").write_bytes(b"damaged")
    (built.root / "artifacts/tiny/stranger").write_bytes(b"x")
    assert planned(built)["package"] == "restore"
    assert built.build() == {**ALL_HIT, "package": "restored"}
    assert not (built.root / "artifacts/tiny/stranger").exists()


def test_a_truncated_blob_is_rebuilt(built: TestWorkspace) -> None:
    sha256 = built.report()["library"]["sha256"]
    library = built.cache / "blobs" / sha256[:2] / sha256
    library.chmod(0o644)
    library.write_bytes(library.read_bytes()[:1000])
    statuses = built.build()
    assert ran(statuses) <= {"compile", "package"}
    assert "compile" in ran(statuses)
    assert built.build() == ALL_HIT


def test_commands_of_doit_work_on_the_same_tasks(built: TestWorkspace) -> None:
    assert [line.split()[0] for line in built.doit("list").stdout.splitlines()] == ["second", "tiny", "tiny@long"]
    assert "tiny:compile" in built.doit("list", "--all", "tiny").stdout
    assert "up-to-date" in built.doit("info", "tiny:compile").stdout
    unknown = built.doit("info", "nothing")
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (2, 1)
    assert built.doit("forget", "tiny").returncode == 0
    assert built.build() == ALL_HIT
    assert built.doit("clean", "tiny").returncode == 0
    assert not (built.root / "artifacts/tiny").exists()
    assert built.build() == {**ALL_HIT, "package": "restored"}


def test_two_workspaces_share_one_store(built: TestWorkspace, tmp_path: Path) -> None:
    other = make_workspace(tmp_path)
    other.cache = built.cache
    assert other.build() == {**ALL_HIT, "package": "restored"}
    ours, theirs = (workspace.root / "artifacts/tiny/lib.so" for workspace in (built, other))
    assert ours.read_bytes() == theirs.read_bytes()
    assert ours.stat().st_ino != theirs.stat().st_ino
