"""What works on this machine, what does not, and how to mend it: ``fiprof env``."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import fiprof
from fiprof.errors import FiprofError
from fiprof.model.requirement import Requirement, State
from fiprof.orchestrator import gpu, ncu
from fiprof.orchestrator.nsys import NVTX_REMEDY, last_line
from fiprof.orchestrator.steps import runner_argv
from fiprof.orchestrator.tools import counters_permitted, find_tool

PROBE_TIMEOUT_S = 120
GPU_EXTRA = "{python} -m pip install torch flashinfer-python nvtx, or name another interpreter with --python PATH"

# Versions of which the two are known not to fit: nsys up to 2024.2 with nvtx 0.2.13 or later.
NVTX_PAYLOADS_UNDERSTOOD_FROM = (2024, 4)
NVTX_PAYLOADS_SENT_FROM = (0, 2, 13)


def diagnose(python: str) -> list[Requirement]:
    """Everything that a collect needs, in the order in which to mend it. python: the workload's interpreter."""
    probe = probe_workload_python(python)
    needs = [Requirement("fiprof", State.OK, fiprof.__version__), *_gpu()]
    nsys_version = _tool(needs, "nsys")
    _tool(needs, "ncu")
    needs.append(_permission())
    needs += _packages(python, probe)
    needs.append(_nvtx_fit(nsys_version, str(probe.get("packages", {}).get("nvtx") or "")))
    needs.append(_jit_cache(probe))
    return needs


def probe_workload_python(python: str) -> dict[str, Any]:
    """What the workload's interpreter has; the key ``problems`` says by package what went wrong. Never raises."""
    try:
        done = subprocess.run(
            [*runner_argv(python), "env"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
        found = json.loads(done.stdout.splitlines()[-1])
        return found if isinstance(found, dict) else {"problems": {"python": "it printed no object"}}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"problems": {"python": str(error)}}
    except (json.JSONDecodeError, IndexError):
        return {"problems": {"python": last_line(done.stderr)}}


def _gpu() -> list[Requirement]:
    count = gpu.count_gpus()
    if not count:
        remedy = "fiprof collect --replay RUN works without one"
        return [Requirement("GPU", State.MISSING, "no NVIDIA GPU or driver", remedy)]
    needs = []
    for index in range(count):
        state = gpu.gpu_state(str(index))
        found = (
            f"{state.get('name')}, driver {state.get('driver')}, {state.get('memory_total_bytes', 0) / 2**30:.0f} GiB"
        )
        others = state.get("other_processes", [])
        if others:
            remedy = "another process on the GPU disturbs the figures: choose a free one with --gpu"
            needs.append(Requirement(f"GPU {index}", State.WARNING, f"{found}, in use by {', '.join(others)}", remedy))
        else:
            needs.append(Requirement(f"GPU {index}", State.OK, found))
    return needs


def _tool(needs: list[Requirement], name: str) -> tuple[int, ...]:
    try:
        tool = find_tool(name)
    except FiprofError as error:
        needs.append(Requirement(name, State.MISSING, error.message, error.remedy))
        return ()
    needs.append(Requirement(name, State.OK, f"{tool.version_text} ({tool.path})"))
    return tool.version


def _permission() -> Requirement:
    permitted = counters_permitted()
    what = "counter permission"
    if permitted is None:
        return Requirement(
            what, State.WARNING, "the driver does not say", f"where ncu is refused: {ncu.PERMISSION_REMEDY}"
        )
    if permitted:
        return Requirement(what, State.OK, "this process may read them")
    return Requirement(what, State.MISSING, "administrators only (RmProfilingAdminOnly is 1)", ncu.PERMISSION_REMEDY)


def _packages(python: str, probe: dict[str, Any]) -> list[Requirement]:
    packages = probe.get("packages", {})
    remedy = GPU_EXTRA.format(python=python)
    if not packages:
        return [
            Requirement("python", State.MISSING, f"{python}: {'; '.join(probe.get('problems', {}).values())}", remedy)
        ]
    needs = [Requirement("python", State.OK, f"{packages['python']} ({python})")]
    for name in ("torch", "flashinfer-python", "nvtx"):
        version = packages.get(name)
        problem = probe.get("problems", {}).get(name, "")
        if version and not problem:
            cuda = probe.get("gpu", {}).get("cuda") if name == "torch" else None
            needs.append(Requirement(name, State.OK, f"{version}, CUDA {cuda}" if cuda else version))
        else:
            needs.append(Requirement(name, State.MISSING, problem or "not installed", remedy))
    return needs


def _nvtx_fit(nsys_version: tuple[int, ...], nvtx: str) -> Requirement:
    what = "nsys with nvtx"
    sent = tuple(int(part) for part in nvtx.split(".") if part.isdigit())
    if not nsys_version or not sent:
        return Requirement(what, State.WARNING, "not known while one of them is missing")
    if nsys_version < NVTX_PAYLOADS_UNDERSTOOD_FROM and sent >= NVTX_PAYLOADS_SENT_FROM:
        return Requirement(what, State.MISSING, "this nsys sees no ranges of this nvtx", NVTX_REMEDY)
    return Requirement(what, State.OK, "they fit")


def _jit_cache(probe: dict[str, Any]) -> Requirement:
    cache = probe.get("jit_cache")
    if not cache:
        return Requirement("JIT cache", State.WARNING, "flashinfer is not installed")
    modules = cache["modules"]
    text = f"{len(modules)} modules, {cache['bytes'] / 2**20:.0f} MiB ({cache['path']})"
    if modules:
        return Requirement("JIT cache", State.OK, text)
    return Requirement(
        "JIT cache", State.WARNING, text, "a kernel's first run compiles it, half a minute to a minute a module"
    )
