"""Builds the wheel: maturin makes it, and this adds the program `braid`.

The program starts itself again (`braid up` does), so the wheel has the real binary as a script, not a
wrapper in Python. maturin takes it from the folder that pyproject.toml names as `data`.

BRAID_WHEEL_PROFILE is the cargo profile of both, `release` if it is not set. The tests build with `dev`: the
program then is that of the workspace's other tests, which have built most of it.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import get_requires_for_build_editable, get_requires_for_build_wheel  # noqa: F401

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "target" / "braidfs.data" / "scripts"


def profile():
    return os.environ.get("BRAID_WHEEL_PROFILE") or "release"


def target_directory():
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    return Path(json.loads(said)["target_directory"])


def add_program():
    """Builds `braid`, and puts it where maturin takes it from."""
    # What is built together shares features, also those that only tests ask for. So a build of tests finds
    # the other tests' products, and their program is beside those.
    if profile() == "dev":
        build = ["cargo", "test", "--locked", "--workspace", "--test", "e2e", "--no-run"]
    else:
        package = ["--package", "braid-cli", "--bin", "braid"]
        build = ["cargo", "build", "--locked", *package, "--profile", profile()]
    subprocess.run(build, cwd=ROOT, check=True)
    folder = "debug" if profile() == "dev" else profile()
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    program = SCRIPTS / "braid"
    # A new file: the old one may be running.
    program.unlink(missing_ok=True)
    shutil.copy2(target_directory() / folder / "braid", program)
    # Debug sections are nine tenths of it. Without binutils it stays whole.
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", str(program)], check=True)


def settings(given):
    """maturin's settings, with the profile."""
    if profile() == "dev":
        # maturin takes this for cargo.
        os.environ["CARGO"] = str(Path(__file__).with_name("cargo-with-tests.sh"))
    arguments = [(given or {}).get("build-args", ""), "--profile", profile()]
    if profile() == "release":
        arguments.append("--strip")
    return {**(given or {}), "build-args": " ".join(arguments).strip()}


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    # maturin looks for the folder here already.
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    add_program()
    return maturin.build_wheel(wheel_directory, settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    add_program()
    return maturin.build_editable(wheel_directory, settings(config_settings), metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    raise RuntimeError("braidfs is built from a checkout of Braid: pip install /path/to/it")
