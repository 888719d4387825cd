"""Unpack what llama-cpp-python's source archive of the installed version has for tests: `upstream_tests.py FOLDER`.

It has llama-cpp-python's own tests, the chat templates of real models, and the tests of llama.cpp's server.
"""

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

#: What their tests read besides: a vocabulary.
_VOCABULARY = "vendor/llama.cpp/models/ggml-vocab-llama-spm.gguf"
_TEMPLATES = "vendor/llama.cpp/models/templates/"
_SERVER_TESTS = "vendor/llama.cpp/tools/server/tests/"


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        what = f"llama-cpp-python=={version('llama-cpp-python')}"
        command = ["download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", folder, what]
        subprocess.run([sys.executable, "-m", "pip", *command], check=True)
        [archive] = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            for member in packed:
                inside = member.name.partition("/")[2]
                wanted = inside.startswith(("tests/test_", _TEMPLATES, _SERVER_TESTS)) or inside == _VOCABULARY
                if member.isfile() and wanted:
                    path = target / inside
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(packed.extractfile(member).read())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
