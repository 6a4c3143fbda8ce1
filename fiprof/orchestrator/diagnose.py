"""What works on this machine, what does not, and how to fix it: ``fiprof env``."""

import json
import subprocess
from typing import Any

import fiprof
from fiprof.analysis.frames import columns
from fiprof.errors import FiprofError
from fiprof.orchestrator.commands import runner_argv
from fiprof.orchestrator.nsys import NVTX_REMEDY, last_line
from fiprof.orchestrator.tools import PERMISSION_REMEDY, count_gpus, counters_permitted, find_tool, gpu_state

PROBE_TIMEOUT_S = 120
GPU_EXTRA = "{python} -m pip install torch flashinfer-python nvtx, or name another interpreter with --python PATH"
GPU_ALONE = "it is installed, and lacks a GPU alone"

# Versions of which the two are known not to fit: nsys up to 2024.2 with nvtx 0.2.13 or later.
NVTX_PAYLOADS_UNDERSTOOD_FROM = (2024, 4)
NVTX_PAYLOADS_SENT_FROM = (0, 2, 13)


OK, WARNING, MISSING = "ok", "warning", "missing"
COLUMNS = columns("env")


def diagnose(python: str) -> list[dict[str, str]]:
    """Everything that a collect needs, in the order in which to fix it. python: the workload's interpreter."""
    rows: list[dict[str, str]] = []

    def need(what: str, state: str, found: str, remedy: str = "") -> None:
        rows.append({"what": what, "state": state, "found": found, "remedy": remedy})

    probe = probe_workload_python(python)
    packages, problems = probe.get("packages", {}), probe.get("problems", {})
    need("fiprof", OK, fiprof.__version__)

    gpus = [gpu_state(str(index)) for index in range(count_gpus())]
    for index, state in enumerate(gpus):
        memory = f"{state.get('memory_total_bytes', 0) / 2**30:.0f} GiB"
        gpu_words = f"{state.get('name')}, driver {state.get('driver')}, {memory}"
        if others := state.get("other_processes", []):
            remedy = "another process on the GPU disturbs the figures: choose a free one with --gpu"
            need(f"GPU {index}", WARNING, f"{gpu_words}, in use by {', '.join(others)}", remedy)
        else:
            need(f"GPU {index}", OK, gpu_words)
    if not gpus:
        need("GPU", MISSING, "no NVIDIA GPU or driver", "fiprof collect --replay RUN works without one")

    versions = {}
    for name in ("nsys", "ncu"):
        try:
            tool = find_tool(name)
            versions[name] = tool.version
            need(name, OK, f"{tool.version_text} ({tool.path})")
        except FiprofError as error:
            need(name, MISSING, error.message, error.remedy)

    what, permitted = "counter permission", counters_permitted()
    if permitted is None:
        need(what, WARNING, "the driver does not say", f"where ncu is refused: {PERMISSION_REMEDY}")
    elif permitted:
        need(what, OK, "this process may read them")
    else:
        need(what, MISSING, "administrators only (RmProfilingAdminOnly is 1)", PERMISSION_REMEDY)

    remedy = GPU_EXTRA.format(python=python)
    if not packages:
        need("python", MISSING, f"{python}: {'; '.join(problems.values())}", remedy)
    else:
        need("python", OK, f"{packages['python']} ({python})")
        for name in ("torch", "flashinfer-python", "nvtx"):
            version = packages.get(name)
            if version and not problems.get(name):
                cuda = probe.get("gpu", {}).get("cuda") if name == "torch" else None
                need(name, OK, f"{version}, CUDA {cuda}" if cuda else version)
            else:
                lacks_gpu = name == "torch" and version and not gpus
                need(name, MISSING, problems.get(name) or "not installed", GPU_ALONE if lacks_gpu else remedy)

    what, understood = "nsys with nvtx", versions.get("nsys")
    sent = tuple(int(part) for part in str(packages.get("nvtx") or "").split(".") if part.isdigit())
    if not understood or not sent:
        need(what, WARNING, "not known while one of them is missing")
    elif understood < NVTX_PAYLOADS_UNDERSTOOD_FROM and sent >= NVTX_PAYLOADS_SENT_FROM:
        need(what, MISSING, "this nsys sees no ranges of this nvtx", NVTX_REMEDY)
    else:
        need(what, OK, "they fit")

    what, cache = "JIT cache", probe.get("jit_cache")
    if not cache:
        need(what, WARNING, "flashinfer is not installed")
    else:
        text = f"{len(cache['modules'])} modules, {cache['bytes'] / 2**20:.0f} MiB ({cache['path']})"
        slow = "a kernel's first run compiles it, half a minute to a minute a module"
        need(what, *((OK, text) if cache["modules"] else (WARNING, text, slow)))
    return rows


def probe_workload_python(python: str) -> dict[str, Any]:
    """What the workload's interpreter has; the key ``problems`` says by package what went wrong. Never raises."""
    argv = [*runner_argv(python), "env"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S, check=False
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        return answer if isinstance(answer, dict) else {"problems": {"python": "it printed no object"}}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"problems": {"python": str(error)}}
    except (json.JSONDecodeError, IndexError):
        return {"problems": {"python": last_line(done.stderr)}}
