"""In the place of llama.cpp's server: take its options, and run `octavo serve` with a model that is made here."""

import argparse
import os
import sys
from pathlib import Path

from helpers import story_model, tiny_models

from octavo.cli.main import main
from octavo.runtime.embedder import MEAN

#: What makes a model, by a word in the name of theirs.
_MADE = {
    "infill": lambda path, template: story_model.write_model(path, template, fills_gaps=True),
    "bge": lambda path, template: tiny_models.write_model(path, "llama", pooling=MEAN, add_eos=True),
    "": story_model.write_model,
}


def _options(arguments: list[str]) -> argparse.Namespace:
    """Return those of the options that octavo has, too; others are those of what it lacks."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("port", "temp", "seed", "host", "hf-repo", "hf-file", "alias", "ctx-size", "parallel", "n-predict"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--api-key")
    parser.add_argument("--chat-template-file", type=Path)
    parser.add_argument("--kv-unified", action="store_true")
    return parser.parse_known_args(arguments)[0]


def _model(options: argparse.Namespace) -> Path:
    """Return a model of the kind that the options name. The file has the name by which clients know it."""
    named = f"{options.hf_repo} {options.hf_file}"
    kind = next(kind for kind in _MADE if kind in named)
    file = options.chat_template_file
    template = file.read_text() if file else tiny_models.CHAT_TEMPLATE
    folder = Path(os.environ["OCTAVO_TEST_MODELS"]) / f"{kind}-{file.stem if file else ''}"
    path = folder / f"{options.alias or 'model'}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _MADE[kind](path, template)
    return path


def _command(options: argparse.Namespace) -> list[str]:
    """Return the arguments of `octavo`."""
    n_parallel = int(options.parallel or 4)
    n_ctx = int(options.ctx_size or 4096) // (1 if options.kv_unified else n_parallel)
    command = ["serve", "--model", str(_model(options)), "--parallel", str(n_parallel), "--ctx-size", str(n_ctx)]
    command += ["--port", options.port, "--temp", options.temp, "--seed", options.seed, "--threads", "1"]
    command += ["--host", options.host, "--predict", options.n_predict or "-1", "--prompt-cache", "0"]
    return command + (["--api-key", options.api_key] if options.api_key else [])


if __name__ == "__main__":
    sys.argv[1:] = _command(_options(sys.argv[1:]))
    main()
