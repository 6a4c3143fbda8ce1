"""What the probe's records and logs of ``fiprof jit`` say: phases of a call, the commands of a warm-up, what failed."""

from __future__ import annotations

import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fiprof.errors import FiprofError
from fiprof.flashinfer.jit.cache import Build
from fiprof.flashinfer.results import JitCall, JitPhase
from fiprof.orchestrator.process import Finished

DISK_FULL = r"No space left on device"
FAILURES = (
    (DISK_FULL, "the disk is full", "free space, or name a folder on another disk with --cache-dir"),
    (r"cannot find (-l\w+)", "the linker cannot find {0}", "FLASHINFER_EXTRA_LDFLAGS=-L… names the folder that has it"),
    (
        r"died due to signal 9|\bKilled\b",
        "the compiler was killed, most likely for want of memory",
        "MAX_JOBS=4 compiles fewer sources at a time",
    ),
    (r"^(.*(?:fatal )?error\b.*)$", "the compiler says: {0}", "--keep keeps the cache folder and its logs"),
)


@dataclass(frozen=True)
class Probed:
    """What a process of the probe found."""

    seconds: float
    """Of the first call."""
    again_s: float | None
    """Median of the calls after it."""
    import_s: float
    modules: Mapping[str, Mapping[str, Any]]
    """Module -> its record, in order."""

    @staticmethod
    def of(records: Sequence[Mapping[str, Any]]) -> Probed:
        """Raises FiprofError for records without a call."""
        call = next((record for record in records if record.get("kind") == "call"), None)
        if call is None:
            raise FiprofError(
                "the case ended the process with exit status 0 before its first call was done",
                "its output stands in the log; --keep keeps it",
            )
        modules = {record["name"]: record for record in records if record.get("kind") == "module"}
        again = statistics.median(call["again_s"]) if call["again_s"] else None
        return Probed(call["first_s"], again, call["import_s"], modules)


def phases(
    seconds: float,
    modules: Mapping[str, Mapping[str, Any]],
    builds: Mapping[str, Sequence[Build]],
) -> list[JitPhase]:
    """Where a call's time went; the phases sum to its seconds.

    modules: the probe's records. builds: what ninja ran for them in this call, empty where it compiled nothing.
    generate: FlashInfer's generators and the build file; compile and link: by ninja's log, first begin to last end;
    load: of the shared libraries; other: ninja's start, its look at dependencies, locks; launch: plan and launch,
    everything outside of the just-in-time compilation.
    """
    total = dict.fromkeys(("generate", "compile", "link", "load", "other"), 0.0)
    compilers = sources = 0.0
    for name, record in modules.items():
        generate = span_seconds(record, "generate")
        write, load, build = (span_seconds(record, phase) for phase in ("write_ninja", "load", "build"))
        compiles = [each for each in builds.get(name, ()) if not each.links]
        links = [each for each in builds.get(name, ()) if each.links]
        compiled = max(b.end_s for b in compiles) - min(b.begin_s for b in compiles) if compiles else 0.0
        linked = sum(each.seconds for each in links)
        if not builds.get(name) and builds:
            # Not built by ninja: a kernel of CuTe DSL compiles inside its build.
            compiled = build
        compilers += sum(each.seconds for each in compiles)
        sources += len(compiles)
        total["generate"] += generate + write
        total["compile"] += compiled
        total["link"] += linked
        total["load"] += load
        total["other"] += max(0.0, span_seconds(record, "build_and_load") - write - compiled - linked - load)
    total["launch"] = max(0.0, seconds - sum(total.values()))
    details = {
        "compile": f"{sources:.0f} sources, {compilers:.1f} s of compilers side by side" if sources > 1 else "",
        "other": "ninja's start and its look at dependencies, locks",
        "launch": "plan and launch",
    }
    return [JitPhase(name, value, details.get(name, "")) for name, value in total.items() if value or name == "launch"]


def span_seconds(record: Mapping[str, Any], phase: str) -> float:
    return sum(float(end) - float(begin) for name, begin, end in record["spans"] if name == phase)


def generator_text(generator: Mapping[str, Any] | None) -> str:
    """Python that makes a module's specification; empty where its arguments cannot be written."""
    if not generator or generator["args"] is None:
        return ""
    return f"{generator['module']}.{generator['function']}({generator['args']})"


def warm_up_commands(generators: Mapping[str, Mapping[str, Any]], calls: Sequence[JitCall]) -> tuple[list[str], str]:
    """Commands that fill the cache, and the Python of the first one; empty where no module's generator is known.

    The first one compiles all modules side by side, with FlashInfer alone. Calls that need a module whose generator
    is not known are run once instead, by fiprof's runner.
    """
    code = warm_up_code(generators)
    lines = [f"python -c {shlex.quote(code)}"] if code else []
    unknown = [call.case for call in calls if set(call.modules) - set(generators)]
    if unknown:
        cases = " ".join(f"--case {shlex.quote(case)}" for case in unknown)
        lines.append(f"python -m fiprof.workloads run {cases} --measure-iterations 1 --no-check")
    return lines, code


def warm_up_code(generators: Mapping[str, Mapping[str, Any]]) -> str:
    """Python that builds and loads every module, all side by side; the same in every FlashInfer since 0.5.

    Not ``flashinfer.jit.build_jit_specs``: from 0.6 on a module that it compiled is compiled again when it is first
    loaded, because ninja's log lies in another folder then (seen in 0.6.13).
    """
    if not generators:
        return ""
    modules = sorted({generator["module"] for generator in generators.values()})
    imports = ", ".join(["torch", *modules])
    specs = ", ".join(generator_text(generator) for generator in generators.values())
    return (
        f"import {imports}; from concurrent.futures import ThreadPoolExecutor; "
        f"list(ThreadPoolExecutor().map(lambda spec: spec.build_and_load(), [{specs}]))"
    )


def explain(failure: Mapping[str, Any] | None, finished: Finished, log: str) -> tuple[str, str]:
    """Message and remedy of a process that failed. failure: what the probe said of it; log: its output."""
    message = str(failure["message"]) if failure else finished.message
    if failure and failure.get("remedy"):
        return message, str(failure["remedy"])
    for pattern, words, remedy in FAILURES:
        if found := re.search(pattern, log, re.MULTILINE):
            return f"{message}: {words.format(*(group.strip()[:200] for group in found.groups()))}", remedy
    return message, "--keep keeps the cache folder and its logs"


def under_way(log: str) -> str:
    """What the end of a probe's log says is going on, e.g. ``3 of 5 commands of the build done``."""
    done = re.findall(r"^\[(\d+)/(\d+)\]", log, re.MULTILINE)
    if done:
        return f"{done[-1][0]} of {done[-1][1]} commands of the build done"
    steps = re.findall(r"^fiprof: (.+)", log, re.MULTILINE)
    return steps[-1] if steps else ""
