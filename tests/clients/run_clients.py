"""Run clients of other projects against the server, each in an environment of its own.

    python tests/clients/run_clients.py FOLDER [NAME...]

FOLDER keeps the environments. Each client is a script beside this one, which says in its first lines what it needs
(PEP 723, or of JavaScript a line `// npm: PACKAGE...`), and gets the server's address and what the model says as
arguments. The model is tiny and always says the same.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import talking_model
from helpers.served import serving

HERE = Path(__file__).parent
CLIENTS = sorted([*HERE.glob("*_client.py"), *HERE.glob("*_client.mjs")])


def prepared(script: Path, folder: Path) -> list[str]:
    """Make the environment of a client, unless it is there; returns the command that runs the client."""
    place, text = folder / script.stem, script.read_text()
    ready = place / "ready"
    if script.suffix == ".mjs":
        [packages] = re.findall(r"^// npm: (.*)$", text, re.MULTILINE)
        if not ready.exists() or ready.read_text() != packages:
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "install", "--silent", "--prefix", place, *packages.split()], check=True)
            ready.write_text(packages)
        copy = place / script.name  # where node finds the packages
        copy.write_text(text)
        return ["node", str(copy)]
    block = re.search(r"^# /// script\n(.*?)^# ///", text, re.MULTILINE | re.DOTALL)
    packages = tomllib.loads(re.sub(r"^# ?", "", block[1], flags=re.MULTILINE))["dependencies"]
    if not ready.exists() or ready.read_text() != str(packages):
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", *packages], check=True)
        ready.write_text(str(packages))
    return [str(place / "bin" / "python"), str(script)]


def main() -> None:
    """Run the clients that are named, by default all."""
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    chosen = [script for script in CLIENTS if not names or script.stem.removesuffix("_client") in names]
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    with serving(talking_model.write_model(folder / "talking.gguf"), folder / "library") as served:
        for script in chosen:
            run = subprocess.run([*prepared(script, folder), served.url, talking_model.ANSWER], text=True, timeout=300)
            failed += [script.stem] if run.returncode else []
            print(f"{script.stem}: {'FAILED' if run.returncode else 'passed'}", flush=True)
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
