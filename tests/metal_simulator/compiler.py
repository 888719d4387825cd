"""Call clang to preprocess, check and compile Metal shaders. Results stay in the user's cache folder.

The name of a cached file is a hash of all its inputs: the preprocessed text (which contains defines and includes), the
shim, the engine, the flags and the compiler's version.
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
    """Return the path of clang 19: $OCTAVO_CLANG, clang++-19 or clang++."""
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
    """Return why the simulator cannot run here, or None if it can."""
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
    folder = Path(user_cache_dir("octavo")) / "metal_simulator"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(command: list[str], text: str = "") -> str:
    """Run the compiler and return its output. Raise MSLError with its messages if it fails."""
    done = subprocess.run([clang(), *command], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MSLError(done.stderr.strip())
    return done.stdout


def preprocess(source: str, defines: dict[str, int | str], name: str, include: Path | None) -> str:
    """Expand the source's own macros and includes. Metal's headers stay empty."""
    definitions = [f"-D{key}={value}" for key, value in defines.items()]
    folders = [f"-I{include}"] if include else []
    command = ["-E", "-undef", "-nostdinc", "-xc++", "-std=c++14", "-D__METAL__=1", "-D__METAL_VERSION__=310"]
    command += ["-DMSL_FIRST_PASS", f"-I{SHIM}", "-fno-caret-diagnostics", "-Wno-pragma-once-outside-header"]
    return run([*command, *folders, *definitions, "-"], f'#line 1 "{name}"\n{source}')


@functools.cache
def fingerprint() -> str:
    """Hash the inputs that all compiled files share."""
    digest = hashlib.sha256()
    files = [*sorted(HERE.glob("*.cpp")), *sorted(HERE.glob("*.h")), *sorted(p for p in SHIM.rglob("*") if p.is_file())]
    for path in [*files, *sorted(HERE.glob("*.py"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(repr((LANGUAGE[:-1], MACHINE, SANITIZE, version(clang()))).encode())
    return digest.hexdigest()


def cached(key: str, suffix: str, make) -> Path:
    """Return the cached file of a key. If there is none, `make(path)` writes it.

    Two processes may make the same file at once: the last one stays.
    """
    name = hashlib.sha256(f"{fingerprint()}\0{suffix}\0{key}".encode()).hexdigest()[:32]
    path = cache_folder() / f"{name}{suffix}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
            unfinished = Path(folder) / path.name
            make(unfinished)
            unfinished.replace(path)
    return path


def check_syntax(text: str) -> None:
    """Compile the translated text with address spaces as types. An empty cached file records that it compiled."""

    def make(path: Path) -> None:
        command = [*LANGUAGE, "-fsyntax-only", "-DMSL_CHECK", "-"]
        done = subprocess.run([clang(), *command], input=text, capture_output=True, text=True, check=False)
        messages = without_record_copies(done.stderr)
        if done.returncode and messages:
            raise MSLError("\n".join(messages))
        path.touch()

    cached(text, ".checked", make)


def without_record_copies(diagnostics: str) -> list[str]:
    """Return clang's errors without those that Metal would not report.

    Metal has copy constructors and assignments of records for every address space. clang has those of the thread space
    only, and reports that no other is viable.
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
    """Compile the translated text to a shared object. It calls the engine of the process that loads it."""
    flags = [*LANGUAGE, *MACHINE, *SANITIZE[sanitizer], "-O1", "-shared", "-Wl,-z,lazy"]
    return cached(f"{flags[:-1]}{text}", ".so", lambda path: run([*flags, "-o", str(path), "-"], text) and None)


def engine() -> Path:
    """Compile the engine to a shared object, for runs in this process."""
    flags = ["-std=c++17", "-O2", "-fPIC", "-shared"]
    return cached("engine", ".so", lambda path: run([*flags, "-o", str(path), str(HERE / "engine.cpp")]) and None)


def runner(sanitizer: str) -> Path:
    """Compile the executable that runs one job under a sanitizer. The engine in it is not instrumented."""

    def make(path: Path) -> None:
        objects = []
        for source in ("engine", "runner"):
            objects.append(str(path.with_name(f"{source}.o")))
            run(["-std=c++17", "-O2", "-c", "-o", objects[-1], str(HERE / f"{source}.cpp")])
        run([*SANITIZE[sanitizer], "-rdynamic", "-o", str(path), *objects, "-ldl"])

    return cached(sanitizer, ".runner", make)
