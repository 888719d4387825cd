"""clang as the compiler of Metal shaders: preprocess, check, compile; results are kept in the user's cache folder.

A cached file is named by a hash of everything that it is made from: the preprocessed text (so of defines and includes
too), the shim, the engine, the flags and the compiler's version.
"""

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from metal_simulator.tokens import MSLError
from platformdirs import user_cache_dir

HERE = Path(__file__).parent
SHIM = HERE / "shim"
LANGUAGE = [
    "-std=c++14",
    "-xc++",
    "-fno-exceptions",
    "-fno-rtti",
    "-nostdinc++",
    "-fno-lax-vector-conversions",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Xclang",
    "-cl-single-precision-constant",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Wno-unknown-attributes",
    "-Wno-duplicate-decl-specifier",
    "-Wno-unknown-pragmas",
    "-Werror=vla",
    "-Werror=c++17-extensions",
    "-Werror=return-type",
    "-Wno-pass-failed",
    "-ferror-limit=0",
    "-fno-caret-diagnostics",
    f"-I{SHIM}",
]
MACHINE = ["-march=x86-64-v3", "-fPIC", "-g1", "-fdebug-compilation-dir=shader"]
SANITIZE = {
    None: [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
    "thread": ["-fsanitize=thread", "-fno-omit-frame-pointer"],
}


def clang() -> str:
    """The compiler: $OCTAVO_CLANG, clang++-19, or a clang++ of version 19."""
    for name in filter(None, (os.environ.get("OCTAVO_CLANG"), "clang++-19", "clang++")):
        path = shutil.which(name)
        if path and re.search(r"clang version 19\.", version(path)):
            return path
    raise FileNotFoundError("clang++ of version 19 is not installed (clang++-19, or the path in $OCTAVO_CLANG)")


@functools.cache
def version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout


@functools.cache
def missing() -> str | None:
    """Why the simulator cannot run here, or None."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "the Metal simulator needs Linux on x86-64"
    flags = Path("/proc/cpuinfo").read_text()
    if any(not re.search(rf"\b{flag}\b", flags) for flag in ("avx2", "f16c", "fma")):
        return "the Metal simulator needs a CPU with AVX2, F16C and FMA"
    try:
        resources = Path(run(["-print-resource-dir"]).strip())
    except FileNotFoundError as error:
        return str(error)
    if not list(resources.glob("lib/**/libclang_rt.tsan*.a")):
        return "clang's sanitizers are not installed (libclang-rt-19-dev)"
    return None if symbolizer() else "llvm-symbolizer, which names lines, is not installed (llvm-19)"


@functools.cache
def symbolizer() -> str | None:
    return shutil.which("llvm-symbolizer-19") or shutil.which("llvm-symbolizer")


@functools.cache
def cache_folder() -> Path:
    folder = Path(user_cache_dir("octavo")) / "metal_sim"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(command: list[str], text: str = "") -> str:
    """Runs the compiler; returns what it printed. Raises MSLError with its messages."""
    done = subprocess.run([clang(), *command], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MSLError(done.stderr.strip())
    return done.stdout


def preprocess(source: str, defines: dict[str, int | str], name: str, include: Path | None) -> str:
    """The source with its own macros and includes expanded, and Metal's headers left out."""
    definitions = [f"-D{key}={value}" for key, value in defines.items()]
    folders = [f"-I{include}"] if include else []
    command = ["-E", "-undef", "-nostdinc", "-xc++", "-std=c++14", "-D__METAL__=1", "-D__METAL_VERSION__=310"]
    command += ["-DMSL_FIRST_PASS", f"-I{SHIM}", "-fno-caret-diagnostics", "-Wno-pragma-once-outside-header"]
    return run([*command, *folders, *definitions, "-"], f'#line 1 "{name}"\n{source}')


@functools.cache
def fingerprint() -> str:
    """A hash of what all compiled files depend on."""
    digest = hashlib.sha256()
    files = [*sorted(HERE.glob("*.cpp")), *sorted(HERE.glob("*.h")), *sorted(p for p in SHIM.rglob("*") if p.is_file())]
    for path in [*files, *sorted(HERE.glob("*.py"))]:
        if not path.name.startswith("test_"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr((LANGUAGE[:-1], MACHINE, SANITIZE, version(clang()))).encode())
    return digest.hexdigest()


def cached(key: str, suffix: str, make) -> Path:
    """The cached file of a key; `make(path)` writes it. Another process may make the same: the last one stays."""
    name = hashlib.sha256(f"{fingerprint()}\0{suffix}\0{key}".encode()).hexdigest()[:32]
    path = cache_folder() / f"{name}{suffix}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            unfinished = Path(folder) / path.name
            make(unfinished)
            unfinished.replace(path)
    return path


def check_syntax(text: str) -> None:
    """Compiles the translated text with address spaces as types. A cached empty file says that it is right."""

    def make(path: Path) -> None:
        command = [*LANGUAGE, "-fsyntax-only", "-DMSL_CHECK", "-"]
        done = subprocess.run([clang(), *command], input=text, capture_output=True, text=True, check=False)
        messages = without_record_copies(done.stderr)
        if done.returncode and messages:
            raise MSLError("\n".join(messages))
        path.touch()

    cached(text, ".checked", make)


def without_record_copies(diagnostics: str) -> list[str]:
    """clang's errors, without those that Metal would not give.

    To read a record from another address space than thread, or to write one there, Metal calls the copy constructor
    or assignment of that space; clang has those of its own space only and says that no other is viable.
    """
    groups: list[list[str]] = []
    for line in diagnostics.splitlines():
        if re.search(r": (fatal )?error: ", line):
            groups.append([line])
        elif ": note: " in line and groups:
            groups[-1].append(line)
    kept = []
    for error, *notes in groups:
        copies = re.search(r"no matching constructor for initialization|no viable overloaded '='", error)
        implicit = [note for note in notes if re.search(r"implicit copy (constructor|assignment operator)\)", note)]
        if copies and any("address space" in note for note in implicit):
            continue
        kept += [error, *notes]
    return kept


def compile_shader(text: str, sanitizer: str | None) -> Path:
    """The translated text as a shared object that calls the engine of the process that loads it."""
    flags = [*LANGUAGE, *MACHINE, *SANITIZE[sanitizer], "-O1", "-shared", "-Wl,-z,lazy"]
    return cached(f"{flags[:-1]}{text}", ".so", lambda path: run([*flags, "-o", str(path), "-"], text) and None)


def engine() -> Path:
    """The engine as a shared object, for runs in this process."""
    flags = ["-std=c++17", "-O2", "-fPIC", "-shared"]
    return cached("engine", ".so", lambda path: run([*flags, "-o", str(path), str(HERE / "engine.cpp")]) and None)


def runner(sanitizer: str) -> Path:
    """An executable with a sanitizer's run time that runs one job; the engine in it is not instrumented."""

    def make(path: Path) -> None:
        objects = []
        for source in ("engine", "runner"):
            objects.append(str(path.with_name(f"{source}.o")))
            run(["-std=c++17", "-O2", "-c", "-o", objects[-1], str(HERE / f"{source}.cpp")])
        run([*SANITIZE[sanitizer], "-rdynamic", "-o", str(path), *objects, "-ldl"])

    return cached(sanitizer, ".runner", make)
