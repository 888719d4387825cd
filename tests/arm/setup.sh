#!/usr/bin/env bash
# Set up an aarch64 Python in a folder, to run under emulation: `setup.sh FOLDER PYTHON [llama.cpp]`.
#
# It is Debian's Python with the libraries it needs, unpacked but not installed, and wheels for aarch64. With
# `llama.cpp` as the third argument, llama.cpp is compiled for aarch64, too, from llama-cpp-python's source archive, as
# PYTHON has it installed. That takes 10 minutes on 2 cores.
set -euo pipefail
folder=$(realpath -m "$1") python=$2 with_llama=${3:-}

as_root=$([ "$(id -u)" = 0 ] || echo sudo)
needed="qemu-user-static ${with_llama:+g++-aarch64-linux-gnu cmake}"
dpkg -s $needed > /dev/null 2>&1 ||
    { $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $needed > /dev/null; }

if [ ! -e "$folder/site/ready" ]; then
    # A package manager of its own, for aarch64, which believes that nothing is installed.
    mkdir -p "$folder"/apt/state/lists/partial "$folder"/apt/cache/archives/partial "$folder/sysroot"
    : > "$folder/apt/status"
    apt=(apt-get -qq -o "Dir::State=$folder/apt/state" -o "Dir::State::status=$folder/apt/status"
         -o "Dir::Cache=$folder/apt/cache" -o APT::Architecture=arm64 -o APT::Architectures::=arm64
         -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
    "${apt[@]}" update
    "${apt[@]}" install --yes --download-only --no-install-recommends python3 libgomp1 libstdc++6 > /dev/null
    for package in "$folder"/apt/cache/archives/*.deb; do dpkg -x "$package" "$folder/sysroot"; done
    version=$(ls "$folder/sysroot/usr/bin" | sed -n 's/^python\(3\.[0-9]*\)$/\1/p')
    "$python" -m pip install --quiet --target "$folder/site" --only-binary :all: --implementation cp \
        --python-version "$version" --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
        --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
        numpy numba platformdirs psutil blake3 gguf threadpoolctl pytest hypothesis \
        jinja2 typing-extensions diskcache
    touch "$folder/site/ready"
fi

if [ -n "$with_llama" ] && [ ! -e "$folder/site/llama_cpp/ready" ]; then
    version=$("$python" -c 'from importlib.metadata import version; print(version("llama-cpp-python"))')
    installed=$("$python" -c 'from importlib.util import find_spec; print(find_spec("llama_cpp").submodule_search_locations[0])')
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$folder/source" \
        "llama-cpp-python==$version"
    tar -xzf "$folder/source/"*.tar.gz -C "$folder/source" --strip-components 1
    cmake -S "$folder/source/vendor/llama.cpp" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
        -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc \
        -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN' \
        -DGGML_NATIVE=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF > "$folder/build.log"
    cmake --build "$folder/build" --target llama --parallel "$(nproc)" >> "$folder/build.log"
    mkdir -p "$folder/site/llama_cpp/lib"
    cp "$installed"/*.py "$folder/site/llama_cpp/"  # they are the same on every CPU
    cp -P "$folder"/build/bin/*.so* "$folder/site/llama_cpp/lib/"
    touch "$folder/site/llama_cpp/ready"
fi
