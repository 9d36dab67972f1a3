"""What holds for the repository as a whole: its files, its version, its public names, the cost of importing it."""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

import pullback as pb

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".py", ".md", ".toml", ".cfg", ".yml", ".yaml", ".txt", ".json", ""}


def text_files() -> list[pathlib.Path]:
    folders = ("pullback", "tests", "bench", "examples", "docs", ".ci")
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path for path in files if path.suffix in SUFFIXES and "__pycache__" not in path.parts]


def fresh_python(code: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def public_names(module) -> list[str]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return sorted(name for name in names if not inspect.ismodule(getattr(module, name)))


def test_no_path_of_one_machine():
    pattern = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt)/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found


def test_version_is_the_installed_one_and_well_formed():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|a\d+|b\d+|rc\d+)?", pb.__version__)
    try:
        installed = importlib.metadata.version("pullback")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("running from a checkout that is not installed")
    assert installed == pb.__version__


def test_changelog_names_the_version_or_is_unreleased():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in text or f"## [{pb.__version__}]" in text


@pytest.mark.parametrize("module", ["pullback", "pullback.nn", "pullback.optim", "pullback.data", "pullback.random"])
def test_public_names_are_documented(module):
    name = module.removeprefix("pullback").lstrip(".")
    target = getattr(pb, name) if name else pb
    bare = [
        public
        for public in public_names(target)
        if callable(getattr(target, public)) and not (getattr(target, public).__doc__ or "").strip()
    ]
    assert not bare


def test_all_lists_what_exists():
    assert pb.__all__
    assert len(set(pb.__all__)) == len(pb.__all__)
    missing = [name for name in pb.__all__ if not hasattr(pb, name)]
    assert not missing


def test_import_loads_no_heavy_module():
    heavy = ("llvmlite", "scipy", "sklearn", "matplotlib", "tqdm", "torch", "jax")
    code = f"import sys, pullback; print(*[name for name in {heavy!r} if name in sys.modules])"
    assert fresh_python(code) == ""


def test_import_is_quick():
    def seconds(code: str) -> float:
        start = time.perf_counter()
        fresh_python(code)
        return time.perf_counter() - start

    extra = min(seconds("import pullback") for _ in range(4)) - min(seconds("pass") for _ in range(4))
    assert extra < 0.6  # 150 ms is wanted and measured by bench; a loaded machine gets slack here


def test_internal_links_of_the_documents():
    broken = []
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert not broken


def test_dependency_direction():
    """What knows nodes imports nothing that knows tensors; of the transforms that is the two engines."""
    layers = ["errors", "dtypes", "shapes", "graph", "ops", "transforms", "compiler", "runtime"]
    api = ("tensor", "api", "nn", "optim", "data")
    engines = {"derivative", "batching"}
    found = []
    for layer in layers:
        location = ROOT / "pullback" / layer
        files = location.rglob("*.py") if location.is_dir() else [location.with_suffix(".py")]
        for path in files:
            if layer == "transforms" and path.stem not in engines:
                continue
            depth = len(path.relative_to(ROOT / "pullback").parts)
            for match in re.finditer(r"^from (\.+)(\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
                dots, name = match.groups()
                if len(dots) == depth and name in api:
                    found.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not found
