"""Run clients of other projects against the server, each in an environment of its own.

    python tests/clients/run_clients.py FOLDER [NAME...]

FOLDER keeps the environments. Each client is a script beside this one, which says in its first lines what it needs
(PEP 723, or a line `npm: PACKAGE...`), and gets the server's address and what the model says as arguments. The model
is tiny and always says the same. That of agents, which are programs with functions of their own, calls one of these,
to read the file a.txt of the folder in which the script runs, and then answers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import agent_model, talking_model
from helpers.agent_model import call_text
from helpers.served import serving

from octavo.runtime.models.find_model import default_model

HERE = Path(__file__).parent
CLIENTS = sorted([*HERE.glob("*_client.py"), *HERE.glob("*_client.mjs"), *HERE.glob("*_agent.py")])


def prepared(script: Path, folder: Path) -> list[str]:
    """Make the environment of a client, unless it is there; returns the command that runs the client."""
    place, text = folder / script.stem, script.read_text()
    ready = place / "ready"
    block = re.search(r"^# /// script\n(.*?)^# ///", text, re.MULTILINE | re.DOTALL)
    if block is None:
        [packages] = re.findall(r"^(?://|#) npm: (.*)$", text, re.MULTILINE)
        if not ready.exists() or ready.read_text() != packages:
            place.mkdir(parents=True, exist_ok=True)
            subprocess.run(["npm", "install", "--silent", "--prefix", place, *packages.split()], check=True)
            ready.write_text(packages)
        copy = place / script.name  # where node finds the packages
        copy.write_text(text)
        return ["node" if script.suffix == ".mjs" else sys.executable, str(copy)]
    packages = tomllib.loads(re.sub(r"^# ?", "", block[1], flags=re.MULTILINE))["dependencies"]
    if not ready.exists() or ready.read_text() != str(packages):
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([place / "bin" / "pip", "install", "--quiet", *packages], check=True)
        ready.write_text(str(packages))
    return [str(place / "bin" / "python"), str(script)]


def run(script: Path, folder: Path, work: Path, url: str, answer: str) -> bool:
    """Run a client in a folder; returns whether it passes."""
    programs = folder / script.stem / "node_modules" / ".bin"
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PWD": str(work)}
    command = [*prepared(script, folder), url, answer]
    passes = subprocess.run(command, text=True, timeout=600, cwd=work, env=environment).returncode == 0
    print(f"{script.stem}: {'passed' if passes else 'FAILED'}", flush=True)
    return passes


def main() -> None:
    """Run the clients that are named, by default all."""
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    named = {script.stem.rpartition("_")[0]: script for script in CLIENTS}
    if unknown := sorted({*names} - {*named}):
        sys.exit(f"There is no client {', '.join(unknown)}: choose from {', '.join(named)}.")
    chosen = [named[name] for name in names or named]
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    file = work / "a.txt"
    file.write_text("The keeper saw 90 ships.\n")
    reading = {"Read": {"file_path": str(file)}, "exec_command": {"cmd": "cat a.txt"}, "read": {"filePath": str(file)}}
    sayings = [(name, call_text(name, **arguments)) for name, arguments in reading.items()]
    talking = talking_model.write_model(folder / "talking.gguf")
    agent = agent_model.write_model(folder / "agent.gguf", sayings, default_model())
    with serving(talking, folder / "library") as first, serving(agent, folder / "library", n_ctx=40960) as second:
        of_kind = {"client": (first.url, talking_model.ANSWER), "agent": (second.url, "".join(agent_model.ANSWER))}
        passed = [run(script, folder, work, *of_kind[script.stem.rpartition("_")[2]]) for script in chosen]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
