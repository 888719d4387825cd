"""The repository is the package: `runtime/llama.py` is `octavo.runtime.llama`."""

from setuptools import find_packages, setup

setup(
    script_name="setup.py",  # which keeps this file out of the wheel
    package_dir={"octavo": "."},
    packages=["octavo", *(f"octavo.{package}" for package in find_packages())],
)
