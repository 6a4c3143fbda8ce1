"""What works on this machine, what does not, and how to mend it: ``fiprof env``."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

import fiprof
from fiprof.errors import FiprofError
from fiprof.orchestrator import gpu, ncu
from fiprof.orchestrator.nsys import NVTX_REMEDY, last_line
from fiprof.orchestrator.steps import runner_argv
from fiprof.orchestrator.tools import counters_permitted, find_tool

State = Literal["ok", "warning", "missing"]

PROBE_TIMEOUT_S = 120
GPU_EXTRA = "{python} -m pip install torch flashinfer-python nvtx, or name another interpreter with --python PATH"

# Versions of which the two are known not to fit: nsys up to 2024.2 with nvtx 0.2.13 or later.
NVTX_PAYLOADS_UNDERSTOOD_FROM = (2024, 4)
NVTX_PAYLOADS_SENT_FROM = (0, 2, 13)


@dataclass(frozen=True)
class Finding:
    """One line of ``fiprof env``."""

    what: str
    state: State
    found: str
    """What is there, with its version."""
    remedy: str = ""
    """What to do about it; empty for ok."""


def diagnose(python: str) -> list[Finding]:
    """Everything that a collect needs, in the order in which to mend it. python: the workload's interpreter."""
    probe = probe_workload_python(python)
    findings = [Finding("fiprof", "ok", fiprof.__version__), *_gpu()]
    nsys_version = _tool(findings, "nsys")
    _tool(findings, "ncu")
    findings.append(_permission())
    findings += _packages(python, probe)
    findings.append(_nvtx_fit(nsys_version, str(probe.get("packages", {}).get("nvtx") or "")))
    findings.append(_jit_cache(probe))
    return findings


def probe_workload_python(python: str) -> dict[str, Any]:
    """What the workload's interpreter has; the key ``problems`` says what went wrong. Never raises."""
    try:
        done = subprocess.run(
            [*runner_argv(python), "env"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
        found = json.loads(done.stdout.splitlines()[-1])
        return found if isinstance(found, dict) else {"problems": ["it printed no object"]}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"problems": [str(error)]}
    except (json.JSONDecodeError, IndexError):
        return {"problems": [last_line(done.stderr)]}


def _gpu() -> list[Finding]:
    count = gpu.count_gpus()
    if not count:
        return [
            Finding("GPU", "missing", "no NVIDIA GPU or driver", "fiprof collect --replay RUN works without one"),
        ]
    findings = []
    for index in range(count):
        state = gpu.gpu_state(str(index))
        found = (
            f"{state.get('name')}, driver {state.get('driver')}, {state.get('memory_total_bytes', 0) / 2**30:.0f} GiB"
        )
        others = state.get("other_processes", [])
        if others:
            remedy = "another process on the GPU disturbs the figures: choose a free one with --gpu"
            findings.append(Finding(f"GPU {index}", "warning", f"{found}, in use by {', '.join(others)}", remedy))
        else:
            findings.append(Finding(f"GPU {index}", "ok", found))
    return findings


def _tool(findings: list[Finding], name: str) -> tuple[int, ...]:
    try:
        tool = find_tool(name)
    except FiprofError as error:
        findings.append(Finding(name, "missing", error.message, error.remedy))
        return ()
    findings.append(Finding(name, "ok", f"{tool.version_text} ({tool.path})"))
    return tool.version


def _permission() -> Finding:
    permitted = counters_permitted()
    what = "counter permission"
    if permitted is None:
        return Finding(what, "warning", "the driver does not say", f"where ncu is refused: {ncu.PERMISSION_REMEDY}")
    if permitted:
        return Finding(what, "ok", "this process may read them")
    return Finding(what, "missing", "administrators only (RmProfilingAdminOnly is 1)", ncu.PERMISSION_REMEDY)


def _packages(python: str, probe: dict[str, Any]) -> list[Finding]:
    packages = probe.get("packages", {})
    remedy = GPU_EXTRA.format(python=python)
    if not packages:
        return [Finding("python", "missing", f"{python}: {'; '.join(probe.get('problems', []))}", remedy)]
    findings = [Finding("python", "ok", f"{packages['python']} ({python})")]
    for name in ("torch", "flashinfer-python", "nvtx"):
        version = packages.get(name)
        problem = next((text for text in probe.get("problems", []) if text.startswith(name.split("-")[0])), "")
        if version and not problem:
            cuda = probe.get("gpu", {}).get("cuda") if name == "torch" else None
            findings.append(Finding(name, "ok", f"{version}, CUDA {cuda}" if cuda else version))
        else:
            findings.append(Finding(name, "missing", problem or "not installed", remedy))
    return findings


def _nvtx_fit(nsys_version: tuple[int, ...], nvtx: str) -> Finding:
    what = "nsys with nvtx"
    sent = tuple(int(part) for part in nvtx.split(".") if part.isdigit())
    if not nsys_version or not sent:
        return Finding(what, "warning", "not known while one of them is missing")
    if nsys_version < NVTX_PAYLOADS_UNDERSTOOD_FROM and sent >= NVTX_PAYLOADS_SENT_FROM:
        return Finding(what, "missing", "this nsys sees no ranges of this nvtx", NVTX_REMEDY)
    return Finding(what, "ok", "they fit")


def _jit_cache(probe: dict[str, Any]) -> Finding:
    cache = probe.get("jit_cache")
    if not cache:
        return Finding("JIT cache", "warning", "flashinfer is not installed")
    modules = cache["modules"]
    text = f"{len(modules)} modules, {cache['bytes'] / 2**20:.0f} MiB ({cache['path']})"
    if modules:
        return Finding("JIT cache", "ok", text)
    return Finding("JIT cache", "warning", text, "a kernel's first run compiles it, half a minute to a minute a module")
