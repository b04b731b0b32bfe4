"""doit generate RECIPE -p PROMPT: text from a built language model, as it comes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydoit.commands.base import EXIT_FAILED, EXIT_GOOD, EXIT_INTERRUPTED, SET, TRACEBACK, ModelbuildCommand, discard_output
from pydoit.commands.build import Build
from pydoit.errors import ModelBuildError, UserError

if TYPE_CHECKING:
    from pydoit.runtime.text.sampling import Sampling


def _option(name: str, kind: type, default: Any, text: str, short: str = "") -> dict[str, Any]:
    return {"name": name, "long": name.replace("_", "-"), "short": short, "type": kind, "default": default, "help": text}


OPTIONS = (
    _option("prompt", str, "", "the text; - reads it from standard input", "p"),
    _option("max_tokens", int, 256, "most tokens to generate"),
    _option("temperature", float, 0.0, "logits are divided by it; 0, the default, takes the likeliest token"),
    _option("top_k", int, 0, "draw from the k likeliest tokens; 0: all"),
    _option("top_p", float, 1.0, "draw from the likeliest tokens that make up this probability"),
    _option("min_p", float, 0.0, "draw from tokens at least this times as likely as the likeliest"),
    _option("repetition_penalty", float, 1.0, "above 1: tokens that occurred become less likely"),
    _option("seed", int, None, "the same seed gives the same text"),
    _option("system", str, "", "system message of the chat"),
    _option("stop", list, [], "end before this text (repeatable)"),
    _option("raw", bool, False, "continue the prompt as it is, without the model's chat template"),
)


class Generate(ModelbuildCommand):
    name = "generate"
    doc_purpose = "continue a prompt with a language model, built first if need be"
    doc_usage = "RECIPE[@VARIANT] -p PROMPT"
    cmd_options = (*OPTIONS, SET, TRACEBACK)

    def run(self, options: dict[str, Any], arguments: list[str]) -> int:
        """Build what is missing, then stream the text to stdout and the figures to stderr."""
        from pydoit.runtime.text.sampling import Sampling

        if len(arguments) != 1:
            raise UserError("name one recipe: `doit generate RECIPE -p PROMPT`")
        prompt = sys.stdin.read() if options["prompt"] == "-" else options["prompt"]
        if not prompt:
            raise UserError("there is no prompt; write `-p PROMPT`, or `-p -` for standard input")
        chosen = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
        sampling = Sampling(**{name: options[name] for name in chosen})
        if options["raw"] and options["system"]:
            raise UserError("--raw has no messages; leave --system out, or --raw")
        if options["max_tokens"] < 1:
            raise UserError(f"--max-tokens {options['max_tokens']}: give at least 1")
        folder = _built(arguments[0], options["set"])
        return EXIT_FAILED if folder is None else _stream(folder, prompt, sampling, options)


def _built(name: str, sets: list[str]) -> Path | None:
    """The folder of the artifact, built if need be; None where the build failed, which was told."""
    builder = Build()
    options, _ = builder.cmdparser.parse([])
    session = builder.open_session({**options, "stages": "package", "set": sets}, [name])
    if session.broken:
        raise UserError(f"{name} cannot be built; correct its recipe")
    if session.loaded[name].nodes["import"].implementation != "language_import":
        raise UserError(f"{name} is no language model; run it from Python by pydoit.runtime.load")
    builder.run_stages(session, options)
    results = session.results(name)
    if "package" in results and results["package"].is_good:
        return session.workspace.artifacts / name
    for result in results.values():
        if result.status == "failed":
            sys.stderr.write(f"{name}: {result.stage} failed: {result.reason}\n")
    return None


def _stream(folder: Path, prompt: str, sampling: Sampling, options: dict[str, Any]) -> int:
    from pydoit.runtime.text_model import load_text_model

    model = load_text_model(folder)
    messages = [{"role": "user", "content": prompt}]
    if options["system"]:
        messages.insert(0, {"role": "system", "content": options["system"]})
    raw = options["raw"]
    generation = model.generate(
        prompt if raw else messages, sampling=sampling, max_tokens=options["max_tokens"], stop=options["stop"], raw=raw
    )
    status = EXIT_GOOD
    try:
        for piece in generation:
            _show(piece)
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    finally:
        generation.close()
    _show("\n")
    sys.stderr.write(f"{generation.completion}\n")
    return status


def _show(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise ModelBuildError(f"the text cannot be written ({error.strerror}); give stdout another place") from error
