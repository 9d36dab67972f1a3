"""Facts about the machine and the libraries, for the head of the table and the JSON file."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from typing import Any

from .row import MODULES, PRODUCT

VECTOR_FLAGS = {"sse2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "asimd", "sve"}
DISTRIBUTIONS = ("numpy", "scipy", "llvmlite", "torch", "jax", "jaxlib")


def installed(library: str) -> bool:
    """Whether ``library`` can be imported here."""
    return importlib.util.find_spec(MODULES[library]) is not None


def machine_facts() -> dict[str, Any]:
    """CPU, cores, operating system, Python and the versions of what is installed."""
    versions = {}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    import pullback

    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "vector_flags": vector_flags(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {PRODUCT: pullback.__version__, **versions},
    }


def blas_facts(libraries: tuple[str, ...]) -> dict[str, str]:
    """Which BLAS each library computes with, its kernel and its threads. Call after the rows have loaded them."""
    facts: dict[str, str] = {}
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        facts["note"] = "install threadpoolctl to see NumPy's and SciPy's BLAS"
    else:
        for pool in threadpool_info():
            if pool["user_api"] != "blas":
                continue
            path = pool["filepath"]
            owners = {"numpy": f"numpy, also for {PRODUCT}", "scipy": "scipy"}
            owner = next((name for part, name in owners.items() if part in path), os.path.basename(path))
            facts[owner] = (
                f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}, "
                f"{pool['num_threads']} threads"
            )
    if any(library.startswith("torch") for library in libraries):
        import torch

        kind = "MKL" if torch.backends.mkl.is_available() else "OpenBLAS or Eigen"
        onednn = "oneDNN, " if torch.backends.mkldnn.is_available() else ""
        facts["torch"] = f"{kind}, {onednn}{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
    if "jax" in libraries:
        facts["jax"] = "XLA's own (Eigen, oneDNN)"
    return facts


def _cpu_model() -> str:
    model = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    model = line.split(":", 1)[1].strip()
                    break
    except OSError:  # not Linux
        pass
    return model or platform.machine()


def vector_flags() -> list[str]:
    """The processor's vector extensions, of those that matter here."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return sorted(VECTOR_FLAGS.intersection(line.split(":", 1)[1].split()))
    except OSError:
        pass
    return []
