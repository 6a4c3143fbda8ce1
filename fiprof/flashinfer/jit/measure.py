"""What FlashInfer's just-in-time compilation costs: every case's first call with an empty cache, with the cache on
disk in a new process, and again in that process; each module's compile time by ninja's log.

Each case has a cache folder of its own, in a scratch folder that is removed afterwards; the user's cache is neither
read nor written.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fiprof
from fiprof import files
from fiprof.analysis.frames import columns
from fiprof.errors import FiprofError, Interrupted
from fiprof.flashinfer.data import JIT, JitCall, JitModule, JitPhase, JitResults, kernels
from fiprof.model import json_file
from fiprof.model.finding import say
from fiprof.model.manifest import fact, read_jsonl
from fiprof.model.redaction import mask_file
from fiprof.model.selection import Labels
from fiprof.orchestrator.process import Finished, ToolCommand
from fiprof.orchestrator.run_session import Bench, Progress, read_log
from fiprof.orchestrator.study import Extra, PackRequest
from fiprof.orchestrator.tools import gpu_env, visible_gpu
from fiprof.reports.view import Document, View, view_of
from fiprof.text import duration
from fiprof.workloads.case import Case, parse_case
from fiprof.workloads.registry import find

LEAST_FREE_BYTES = 2**30  # a module with its objects took 4 to 60 MB; nvcc's temporary files take more
BUSY_LOAD = 0.25
"""Runnable processes a core before the first cold call, above which a warning says that the machine was busy."""
READABLE_LOGS = range(4, 8)
"""Versions of .ninja_log whose lines are start and end (ms), time stamp, output and hash, with tabs between."""
COLD, DISK = "empty cache", "disk cache"

DEFAULT_CASES = tuple(case for table in kernels().values() for case in table.get("jit", ()))
"""What decides which module is compiled: backend, tensor cores, element type and head size; not batch or length."""

KEEP = "--keep keeps the cache folder and its logs"
DISK_FULL = r"No space left on device"
FAILURES = (
    (DISK_FULL, "the disk is full", "free space, or name a folder on another disk with --cache-dir"),
    (r"cannot find (-l\w+)", "the linker cannot find {0}", "FLASHINFER_EXTRA_LDFLAGS=-L… names the folder that has it"),
    (
        r"died due to signal 9|\bKilled\b",
        "the compiler was killed, most likely for want of memory",
        "MAX_JOBS=4 compiles fewer sources at a time",
    ),
    (r"^(.*(?:fatal )?error\b.*)$", "the compiler says: {0}", KEEP),
)
"""What stands in a log, the words for it, and what to do."""


@dataclass(frozen=True)
class JitRequest:
    cases: tuple[Case, ...]
    python: str = sys.executable  # the interpreter that has torch and flashinfer
    cache_dir: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))  # of the scratch folder
    keep: bool = False  # leave the scratch folder
    gpu: int | None = None  # as nvidia-smi counts; None for the first visible
    timeout_s: float = 900.0  # of each process


class _CaseError(FiprofError):
    """One case failed; the others may work."""


def choose_cases(names: Sequence[str] = (), cases: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases to measure: those named, and for each kernel those that need a module of their own.

    names: workloads; one that DEFAULT_CASES does not have is taken with its defaults. Without any, and without
    cases, all of DEFAULT_CASES. Raises FiprofError (exit status 2) for an unknown one, or one that compiles nothing.
    """
    default_cases, chosen = [parse_case(text) for text in DEFAULT_CASES], list[Case]()
    for name in names:
        chosen += [case for case in default_cases if case.workload == name] or [parse_case(name)]
    chosen += [parse_case(text) for text in cases]
    for case in chosen:
        if "flashinfer" not in find(case.workload).imports:
            what = f"{case.workload} does not use flashinfer: it compiles nothing just in time"
            raise FiprofError(what, "its class names flashinfer in imports where it does", exit_code=2)
    return tuple(dict.fromkeys(chosen or default_cases))


def commands(request: JitRequest, scratch: Path) -> list[ToolCommand]:
    """Every command of a request in order: two a case, which share a cache folder."""
    steps = []
    for number, case in enumerate(request.cases, 1):
        base = scratch / f"cache-{number}"
        env = {
            "FLASHINFER_WORKSPACE_BASE": str(base),
            "FLASHINFER_JIT_VERBOSE": "1",
            # Without this, verbose means a debug build: other flags, other code, other times.
            "FLASHINFER_JIT_DEBUG": "0",
            "TORCH_EXTENSIONS_DIR": str(base / "torch_extensions"),
            "TRITON_CACHE_DIR": str(base / "triton"),
            "CUDA_CACHE_PATH": str(base / "cuda"),
            "CUTE_DSL_CACHE_DIR": str(base / "cute_dsl"),
            # A compiler's cache in front of the compiler would make a cold call warm.
            "FLASHINFER_NVCC_LAUNCHER": "",
            "FLASHINFER_CXX_LAUNCHER": "",
            "CCACHE_DISABLE": "1",
        }
        if "FLASHINFER_CUBIN_DIR" in os.environ:
            env["FLASHINFER_CUBIN_DIR"] = str(base / "cubins")
        env |= gpu_env(request.gpu)
        for state in (COLD, DISK):
            name = f"{number:02}-{state.replace(' ', '-')}"
            out, log = (scratch / "logs" / f"{name}.{kind}" for kind in ("jsonl", "log"))
            probe = str(Path(__file__).with_name("probe.py"))
            argv = (request.python, probe, case.argument, str(out))
            steps.append(ToolCommand(name, argv, log, env, request.timeout_s, makes=(out,)))
    return steps


def measure(request: JitRequest, bench: Bench, *, study: str = "") -> JitResults:
    """Measure every case's first calls, one at a time.

    study: name of the study that this belongs to.
    Raises FiprofError when nothing could be measured, a process ran out of time, or somebody stopped it; a case that
    fails alone stands in the results with its error.
    """
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    calls: list[JitCall] = []
    modules: dict[str, JitModule] = {}
    environment: dict[str, Any] = {}
    layout: dict[str, int] = {}
    warnings, remedy = [], ""
    if load > BUSY_LOAD * cores:
        warnings.append(f"the machine was busy before the first cold call: load {load:.1f} on {cores} cores")
    with bench.holding(visible_gpu(request.gpu)), _scratch(request, bench.progress) as scratch:
        steps = iter(commands(request, scratch))
        for number, (case, cold, disk) in enumerate(zip(request.cases, steps, steps, strict=True), 1):
            base, where = scratch / f"cache-{number}", f"{number}/{len(request.cases)} {case.id}"
            try:
                first = _probe(cold, f"{where}: {COLD}", bench, environment)
            except _CaseError as error:
                bench.progress.say(f"{case.id}: {error.message}")
                remedy = remedy or error.remedy
                calls.append(JitCall(case.id, None, None, None, [], error=error.message))
                continue
            own = read_modules(base)
            modules = {**own, **modules}
            if not own:
                ahead = ", ".join(name.replace("_", "-") for name in environment.get("compiled_ahead", ()))
                brought = f"{ahead} brings it ready made, or " if ahead else ""
                warnings.append(f"{case.id}: its first call made no module: {brought}nothing was compiled by ninja")
            disk_s = None
            try:
                disk_s = _probe(disk, f"{where}: {DISK}", bench, environment)["first_s"]
                if read_modules(base) != own:
                    warnings.append(f"{case.id}: the new process compiled again though the cache was full")
            except _CaseError as error:
                warnings.append(f"{case.id}: with the cache on disk it failed: {error.message}")
            calls.append(JitCall(case.id, first["first_s"], disk_s, statistics.median(first["again_s"]), list(own)))
            for path in sorted(base.rglob("*")):
                name = f"{path.relative_to(base)}{'/' if path.is_dir() else ''}"
                layout[name] = layout.get(name, 0) + (path.stat().st_size if path.is_file() else 0)
    if all(call.error for call in calls):
        raise FiprofError(f"no case could be measured, the first: {calls[0].case}: {calls[0].error}", remedy)
    cases = " ".join(f"--case {shlex.quote(call.case)}" for call in calls if not call.error)
    return JitResults(
        study=study,
        calls=calls,
        modules=sorted(modules.values(), key=lambda module: -(module.compile_s or 0.0)),
        cache_layout=list(layout),
        cache_bytes=sum(layout.values()),
        warm_up=[f"python -m fiprof.workloads run {cases} --measure-iterations 1 --no-check"],
        environment=environment,
        warnings=warnings,
        fiprof=fiprof.__version__,
    )


def extras() -> Mapping[str, Extra]:
    """What a study can measure beyond its cases."""
    return {"jit": measure_jit}


def measure_jit(request: PackRequest) -> None:
    """Measure the compilation of a study's cases, unless the study has it already."""
    file = request.results / JIT
    if not file.exists():
        wanted = JitRequest(cases=request.cases, python=request.python, gpu=request.gpu)
        found = measure(wanted, request.bench, study=request.study)
        file.parent.mkdir(exist_ok=True)
        json_file.write(file, found)


def _probe(command: ToolCommand, name: str, bench: Bench, environment: dict[str, Any]) -> dict[str, Any]:
    """The probe's record of a call; fills an empty environment.

    Raises _CaseError where the case failed, FiprofError where no case can work.
    """
    with bench.progress.step(name):
        finished = bench.executor.start(command).wait(lambda log: bench.progress.detail(name, under_way(log)))
    (out,) = command.makes
    if out.exists():
        mask_file(out.parent, out.name)
    if finished.outcome == "interrupted":
        raise Interrupted("nothing of it is kept")
    if finished.outcome == "timeout":
        raise FiprofError(f"{name}: {finished.message}", "--timeout gives it longer")
    if finished.exit_status is None:
        raise FiprofError(finished.message, "--python PATH names the interpreter that has torch and flashinfer")
    records = {record["kind"]: record for record in read_jsonl(out)}
    if "environment" in records and not environment:
        environment |= {key: value for key, value in records["environment"].items() if key != "kind"}
    if finished.outcome == "ok" and "failure" not in records:
        if "call" not in records:
            what = "the case ended the process with exit status 0 before its first call was done"
            raise _CaseError(what, "its output stands in the log; --keep keeps it")
        return records["call"]
    log = read_log(command.log)
    message, remedy = explain(records.get("failure"), finished, log)
    of_case = "environment" in records and not re.search(DISK_FULL, log)
    raise (_CaseError if of_case else FiprofError)(message, remedy)


def explain(failure: dict[str, Any] | None, finished: Finished, log: str) -> tuple[str, str]:
    """Message and remedy of a process that failed. failure: the probe's record of it; log: its output."""
    message = str(failure["message"]) if failure else finished.message
    if failure and failure.get("remedy"):
        return message, str(failure["remedy"])
    for pattern, words, remedy in FAILURES:
        if found := re.search(pattern, log, re.MULTILINE):
            return f"{message}: {words.format(*(group.strip()[:200] for group in found.groups()))}", remedy
    return message, KEEP


def under_way(log: str) -> str:
    """What the end of a probe's log says is going on, e.g. ``3 of 5 commands of the build done``."""
    if done := re.findall(r"^\[(\d+)/(\d+)\]", log, re.MULTILINE):
        return f"{done[-1][0]} of {done[-1][1]} commands of the build done"
    return next(reversed(re.findall(r"^fiprof: (.+)", log, re.MULTILINE)), "")


@contextlib.contextmanager
def _scratch(request: JitRequest, progress: Progress) -> Iterator[Path]:
    """A folder for the length of a block. Raises FiprofError where it cannot be made or the disk is nearly full."""
    with contextlib.ExitStack() as until_done:
        try:
            if request.keep:
                folder = Path(tempfile.mkdtemp(prefix="fiprof-jit-", dir=request.cache_dir)).resolve()
                until_done.callback(progress.say, f"kept: {folder}")
            else:
                folder = until_done.enter_context(files.scratch(request.cache_dir)).resolve()
        except OSError as error:
            remedy = "--cache-dir names another folder for the caches"
            raise FiprofError(f"{request.cache_dir} cannot be written: {error.strerror}", remedy) from error
        free = shutil.disk_usage(folder).free
        if free < LEAST_FREE_BYTES:
            raise FiprofError(
                f"{request.cache_dir} has {free / 2**20:.0f} MiB left; compiling takes up to {LEAST_FREE_BYTES >> 20}",
                "free space, or name a folder on another disk with --cache-dir",
            )
        for number, _ in enumerate(request.cases, 1):
            (folder / f"cache-{number}").mkdir()
        yield folder


# The cache on disk


def read_modules(base: Path) -> dict[str, JitModule]:
    """The modules in a cache folder (what FLASHINFER_WORKSPACE_BASE names) by name; times from ninja's logs.

    Raises FiprofError for a log of another format.
    """
    modules: dict[str, JitModule] = {}
    for folder in sorted(path for path in base.glob(".cache/flashinfer/*/*/cached_ops/*") if path.is_dir()):
        if not (folder / "build.ninja").exists():
            # Kernels of CuTe DSL: an object file each, no ninja.
            for path in sorted(folder.glob("*.o")):
                name = f"{folder.name}/{path.stem}"
                modules[name] = JitModule(name, path.stat().st_size, None, [])
            continue
        # The log lies in the module's folder, or one for all modules beside it (0.5).
        if not (builds := read_ninja_log(folder / ".ninja_log")):
            every = read_ninja_log(folder.parent / ".ninja_log")
            builds = [build for build in every if Path(build[2]).parent.name == folder.name]
        begin = min((start for start, _, _ in builds), default=0.0)
        phases = []
        for start, end, output in builds:
            linked = output.endswith(".so")
            source = "" if linked else re.sub(r"(\.cuda)?\.o$", "", Path(output).name)
            phases.append(JitPhase("link" if linked else "compile", end - start, source, start_s=start - begin))
        library = folder / f"{folder.name}.so"
        size = library.stat().st_size if library.exists() else 0
        compile_s = max(end for _, end, _ in builds) - begin if builds else None
        modules[folder.name] = JitModule(folder.name, size, compile_s, phases)
    return modules


def read_ninja_log(log: Path) -> list[tuple[float, float, str]]:
    """Begin and end (s) and output of the last command of each output, in the order of begin; none without a log.

    Raises FiprofError for a log of another format. A last line that was cut short is left out.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FiprofError(f"{log} cannot be read: {error.strerror}") from error
    found = re.fullmatch(r"# ninja log v([0-9]{1,9})", lines[0]) if lines else None
    if found is None or int(found.group(1)) not in READABLE_LOGS:
        what = f"{log} is no ninja log that fiprof reads: it begins {lines[0][:40]!r}" if lines else f"{log} is empty"
        raise FiprofError(what, f"versions {READABLE_LOGS.start} to {READABLE_LOGS.stop - 1} are understood")
    builds: dict[str, tuple[float, float, str]] = {}
    for fields in (line.split("\t") for line in lines[1:]):
        if len(fields) == 5 and all(re.fullmatch("[0-9]{1,18}", each) for each in fields[:2]):
            builds[fields[3]] = (int(fields[0]) / 1e3, int(fields[1]) / 1e3, fields[3])
    return sorted(builds.values())


SLOWEST_DOMINATES = 0.8
"""Part of a module's compile time: when its slowest source takes this much, more cores hardly help."""

CALL_COLUMNS, MODULE_COLUMNS = (columns(name, Path(__file__).with_name("columns.csv")) for name in ("calls", "modules"))
CALLS_NOTE = (
    "One cold and one disk call a case, each in a process of its own, alone on the machine; imports, the CUDA context "
    "and the inputs are made before the clock starts. The columns from compile to other sum to the empty cache's time."
)


def document(results: JitResults) -> Document:
    """The calls, the modules, what follows from them and what the cache holds."""
    environment = results.environment
    facts = {
        "{}": fact(environment, "gpu", "name"),
        "flashinfer {}": fact(environment, "packages", "flashinfer-python"),
        "torch {}": fact(environment, "packages", "torch"),
        "nvcc {}": environment.get("nvcc"),
        "{} cores": environment.get("cores"),
        "MAX_JOBS={}": environment.get("max_jobs"),
    }
    known = ", ".join(text.format(fact) for text, fact in facts.items() if fact)
    rows, modules = call_rows(results), module_rows(results)
    failed = [f"{row['label']}: not measured: {row['error']}" for row in rows if row["error"]]
    title, notes = "First calls", (CALLS_NOTE, *failed)
    programs = view_of(CALL_COLUMNS, rows, title=title, notes=notes)
    shown = [view_of(CALL_COLUMNS, rows, title=title, summary=tuple(sentences(results)), notes=notes)] if rows else []
    if modules:
        shown.append(view_of(MODULE_COLUMNS, modules, title="Modules", notes=("From ninja's log of the cold calls.",)))
    files = sum(not path.endswith("/") for path in results.cache_layout)
    held = f"With all modules it holds {results.cache_bytes / 2**20:.1f} MiB in {files} files."
    shown.append(View(title="The cache", summary=(held,)))
    if results.warm_up:
        words = "To warm the cache up before a server starts:"
        shown.append(View(summary=(words,), code="\n".join(results.warm_up)))
    note = f"Measured with {known or 'an unknown environment'}."
    return Document(programs, tuple(shown), tuple(results.warnings), (note,))


def call_rows(results: JitResults) -> list[dict[str, Any]]:
    """CALL_COLUMNS of each first call; compile and link are those of the modules that it made, by ninja's log."""
    name, modules = Labels(call.case for call in results.calls), {module.name: module for module in results.modules}
    rows = []
    for call in results.calls:
        compile_s = link_s = other_s = None
        if call.cold_s is not None:
            compile_s = link_s = 0.0
            for phases in (modules[each].phases for each in call.modules if each in modules):
                compiles = [each for each in phases if each.name == "compile"]
                ends = [(each.start_s or 0.0) + each.seconds for each in compiles]
                compile_s += max(ends, default=0.0) - min((each.start_s or 0.0 for each in compiles), default=0.0)
                link_s += sum(each.seconds for each in phases if each.name == "link")
            other_s = call.cold_s - compile_s - link_s
        rows.append(
            {
                "case": call.case, "label": name(call.case), "cold_s": call.cold_s, "disk_s": call.disk_s,
                "memory_ms": None if call.memory_s is None else call.memory_s * 1e3, "compile_s": compile_s,
                "link_s": link_s, "other_s": other_s, "modules": tuple(call.modules), "error": call.error,
            }
        )  # fmt: skip
    return rows


def module_rows(results: JitResults) -> list[dict[str, Any]]:
    name, rows = Labels(call.case for call in results.calls), []
    for module in results.modules:
        compiles = [phase for phase in module.phases if phase.name == "compile"]
        slowest = max(compiles, key=lambda phase: phase.seconds, default=JitPhase("compile", 0.0))
        used_by = tuple(name(call.case) for call in results.calls if module.name in call.modules)
        slow = {"slowest": slowest.detail.rpartition("/")[2], "slowest_s": slowest.seconds if compiles else None}
        size = {"sources": len(compiles), "mebibytes": module.bytes / 2**20 if module.bytes else None}
        rows.append({"module": module.name, "used_by": used_by, "compile_s": module.compile_s, **slow, **size})
    return rows


def sentences(results: JitResults) -> list[str]:
    """What the measurement says: the longest first call, where the time went, and whether more cores would help; none
    without a measured case."""
    calls = sorted((row for row in call_rows(results) if row["cold_s"]), key=lambda row: -row["cold_s"])
    if not calls:
        return []
    longest, whole = calls[0], sum(row["cold_s"] for row in calls)
    times = {
        "with an empty cache": longest["cold_s"],
        "in a new process with the cache on disk": longest["disk_s"],
        "again in the same process": longest["memory_ms"] and longest["memory_ms"] / 1e3,
    }
    totals = {name: sum(row[f"{name}_s"] for row in calls) for name in ("compile", "link", "other")}
    took = ", ".join(f"{duration(each * 1e6)} {state}" for state, each in times.items() if each is not None)
    parts = [f"{name} {duration(total * 1e6)} ({total / whole:.1%})" for name, total in totals.items()]
    words = "Where the {total} of {count:cold first call|cold first calls} went: {parts}."
    lines: list[str] = [
        say("The costliest first call, {case}, takes {times}.", case=longest["label"], times=took),
        say(words, total=duration(whole * 1e6), count=len(calls), parts=parts),
    ]
    built = [row for row in module_rows(results) if row["slowest_s"] and row["compile_s"]]
    bound = sum(row["slowest_s"] >= SLOWEST_DOMINATES * row["compile_s"] for row in built)
    if built:
        follows = "More cores, or a higher MAX_JOBS, help."
        if bound * 2 >= len(built):
            follows = "More cores do not make one module faster; compiling the modules side by side does."
        words = "In {bound} of {modules:module|modules} the slowest source takes {part:.0%} of the time or more."
        lines.append(say(f"{words} {follows}", bound=bound, modules=len(built), part=SLOWEST_DOMINATES))
    return lines
