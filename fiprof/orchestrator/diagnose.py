"""What works on this machine, what does not, and how to fix it: ``fiprof env``."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import fiprof
from fiprof.analysis.frames import Column, Frame
from fiprof.errors import FiprofError
from fiprof.orchestrator import ncu
from fiprof.orchestrator.commands import runner_argv
from fiprof.orchestrator.nsys import NVTX_REMEDY, last_line
from fiprof.orchestrator.tools import count_gpus, counters_permitted, find_tool, gpu_state

PROBE_TIMEOUT_S = 120
GPU_EXTRA = "{python} -m pip install torch flashinfer-python nvtx, or name another interpreter with --python PATH"

# Versions of which the two are known not to fit: nsys up to 2024.2 with nvtx 0.2.13 or later.
NVTX_PAYLOADS_UNDERSTOOD_FROM = (2024, 4)
NVTX_PAYLOADS_SENT_FROM = (0, 2, 13)


OK, WARNING, MISSING = "ok", "warning", "missing"
COLUMNS = (
    Column("what", "what", meaning="What a collect needs."),
    Column("state", "state", meaning="ok, warning or missing."),
    Column("found", "found", meaning="What is there, with its version."),
    Column("remedy", meaning="What to do about it; empty for ok."),
)
Need = dict[str, str]


def diagnose(python: str) -> Frame:
    """Everything that a collect needs, in the order in which to fix it. python: the workload's interpreter."""
    probe = probe_workload_python(python)
    needs = [_need("fiprof", OK, fiprof.__version__), *_gpu()]
    nsys_version = _tool(needs, "nsys")
    _tool(needs, "ncu")
    needs.append(_permission())
    needs += _packages(python, probe)
    needs.append(_nvtx_fit(nsys_version, str(probe.get("packages", {}).get("nvtx") or "")))
    needs.append(_jit_cache(probe))
    return Frame(COLUMNS, needs)


def _need(what: str, state: str, found: str, remedy: str = "") -> Need:
    return {"what": what, "state": state, "found": found, "remedy": remedy}


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


def _gpu() -> list[Need]:
    count = count_gpus()
    if not count:
        remedy = "fiprof collect --replay RUN works without one"
        return [_need("GPU", MISSING, "no NVIDIA GPU or driver", remedy)]
    needs = []
    for index in range(count):
        state = gpu_state(str(index))
        found = (
            f"{state.get('name')}, driver {state.get('driver')}, {state.get('memory_total_bytes', 0) / 2**30:.0f} GiB"
        )
        others = state.get("other_processes", [])
        if others:
            remedy = "another process on the GPU disturbs the figures: choose a free one with --gpu"
            needs.append(_need(f"GPU {index}", WARNING, f"{found}, in use by {', '.join(others)}", remedy))
        else:
            needs.append(_need(f"GPU {index}", OK, found))
    return needs


def _tool(needs: list[Need], name: str) -> tuple[int, ...]:
    try:
        tool = find_tool(name)
    except FiprofError as error:
        needs.append(_need(name, MISSING, error.message, error.remedy))
        return ()
    needs.append(_need(name, OK, f"{tool.version_text} ({tool.path})"))
    return tool.version


def _permission() -> Need:
    permitted = counters_permitted()
    what = "counter permission"
    if permitted is None:
        return _need(what, WARNING, "the driver does not say", f"where ncu is refused: {ncu.PERMISSION_REMEDY}")
    if permitted:
        return _need(what, OK, "this process may read them")
    return _need(what, MISSING, "administrators only (RmProfilingAdminOnly is 1)", ncu.PERMISSION_REMEDY)


def _packages(python: str, probe: dict[str, Any]) -> list[Need]:
    packages = probe.get("packages", {})
    remedy = GPU_EXTRA.format(python=python)
    if not packages:
        return [_need("python", MISSING, f"{python}: {'; '.join(probe.get('problems', {}).values())}", remedy)]
    needs = [_need("python", OK, f"{packages['python']} ({python})")]
    for name in ("torch", "flashinfer-python", "nvtx"):
        version = packages.get(name)
        problem = probe.get("problems", {}).get(name, "")
        if version and not problem:
            cuda = probe.get("gpu", {}).get("cuda") if name == "torch" else None
            needs.append(_need(name, OK, f"{version}, CUDA {cuda}" if cuda else version))
        else:
            needs.append(_need(name, MISSING, problem or "not installed", remedy))
    return needs


def _nvtx_fit(nsys_version: tuple[int, ...], nvtx: str) -> Need:
    what = "nsys with nvtx"
    sent = tuple(int(part) for part in nvtx.split(".") if part.isdigit())
    if not nsys_version or not sent:
        return _need(what, WARNING, "not known while one of them is missing")
    if nsys_version < NVTX_PAYLOADS_UNDERSTOOD_FROM and sent >= NVTX_PAYLOADS_SENT_FROM:
        return _need(what, MISSING, "this nsys sees no ranges of this nvtx", NVTX_REMEDY)
    return _need(what, OK, "they fit")


def _jit_cache(probe: dict[str, Any]) -> Need:
    cache = probe.get("jit_cache")
    if not cache:
        return _need("JIT cache", WARNING, "flashinfer is not installed")
    modules = cache["modules"]
    text = f"{len(modules)} modules, {cache['bytes'] / 2**20:.0f} MiB ({cache['path']})"
    if modules:
        return _need("JIT cache", OK, text)
    return _need("JIT cache", WARNING, text, "a kernel's first run compiles it, half a minute to a minute a module")
