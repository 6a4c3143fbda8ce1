"""What FlashInfer's just-in-time compilation costs: every case's first call with an empty cache, with the cache on
disk in a new process, and with the module in memory.

Each cold call has a cache folder of its own, in a scratch folder that is removed afterwards; the user's cache is
neither read nor written.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fiprof
from fiprof.errors import INTERRUPTED_EXIT, FiprofError, Interrupted
from fiprof.flashinfer.data import kernels
from fiprof.flashinfer.jit import cache as jit_cache
from fiprof.flashinfer.jit.records import (
    DISK_FULL,
    Probed,
    explain,
    generator_text,
    phases,
    span_seconds,
    under_way,
    warm_up_commands,
)
from fiprof.flashinfer.results import JitCall, JitModule, JitResults
from fiprof.model.records import read_jsonl
from fiprof.orchestrator.gpu import visible_gpu
from fiprof.orchestrator.locks import gpu_lock
from fiprof.orchestrator.process import Command, Finished, Supervisor
from fiprof.orchestrator.progress import Progress
from fiprof.orchestrator.session import read_log
from fiprof.workloads.case import Case, parse_case
from fiprof.workloads.registry import find

LEAST_FREE_BYTES = 2**30
"""A module with its objects took 4 to 60 MB; nvcc's temporary files take more."""
BUSY_LOAD = 0.25
"""Runnable processes a core before the first cold call, above which a warning says that the machine was busy."""

PROBE = "fiprof.flashinfer.jit.probe"
COLD, DISK, WARM_UP = "empty cache", "disk cache", "warm-up"

DEFAULT_CASES = tuple(case for table in kernels().values() for case in table.get("jit", ()))
"""What decides which module is compiled: backend, tensor cores, element type and head size; not batch or length."""

# A compiler's cache in front of the compiler would make a cold call warm.
NO_COMPILER_CACHE = {"FLASHINFER_NVCC_LAUNCHER": "", "FLASHINFER_CXX_LAUNCHER": "", "CCACHE_DISABLE": "1"}


@dataclass(frozen=True)
class JitRequest:
    """What ``fiprof jit`` is to measure."""

    cases: tuple[Case, ...]
    python: str = sys.executable
    """The interpreter that has torch and flashinfer."""
    cache_dir: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Where the scratch folder is made."""
    keep: bool = False
    """Leave the scratch folder."""
    gpu: int | None = None
    """As nvidia-smi counts; None for the first visible."""
    timeout_s: float = 900.0
    """That each process may take."""


def choose_cases(names: Sequence[str] = (), cases: Sequence[str] = ()) -> tuple[Case, ...]:
    """The cases to measure: those named, and for each kernel those that need a module of their own.

    names: workloads; one that DEFAULT_CASES does not have is taken with its defaults. Without any, and without
    cases, all of DEFAULT_CASES. Raises FiprofError (exit status 2) for an unknown one, or one that compiles nothing.
    """
    known = [parse_case(text) for text in DEFAULT_CASES]
    chosen = [
        case for name in names for case in [each for each in known if each.workload == name] or [parse_case(name)]
    ]
    chosen += [parse_case(text) for text in cases]
    for case in chosen:
        if "flashinfer" not in find(case.workload).imports:
            raise FiprofError(
                f"{case.workload} does not use flashinfer: it compiles nothing just in time",
                "its class names flashinfer in imports where it does",
                exit_code=2,
            )
    return tuple(dict.fromkeys(chosen or known))


def commands(request: JitRequest, scratch: Path) -> list[Command]:
    """Every command of a request but the warm-up's, which is made of what they find; in order."""
    return [
        _probe_command(request, case, number, state, scratch)
        for number, case in enumerate(request.cases, 1)
        for state in (COLD, DISK)
    ]


def measure(
    request: JitRequest, progress: Progress, supervisor: Supervisor, *, wait: bool = True, study: str = ""
) -> JitResults:
    """Measure every case's first calls, one at a time, then the warm-up of them all.

    wait: wait while another fiprof uses the GPU. study: name of the study that this belongs to.
    Raises FiprofError when nothing could be measured, a process ran out of time, or somebody stopped it; a case that
    fails alone stands in the results with its error.
    """
    warnings = _machine_warnings()
    gpu = visible_gpu(request.gpu)
    with (
        gpu_lock(gpu, wait=wait, waiting=progress.say, stopping=supervisor.stopping),
        _scratch(request, progress) as scratch,
    ):
        return _Measurement(request, progress, supervisor, scratch).results(study, warnings)


class _Measurement:
    """The steps of one measurement, and what they found."""

    def __init__(self, request: JitRequest, progress: Progress, supervisor: Supervisor, scratch: Path) -> None:
        self.request = request
        self.progress = progress
        self.supervisor = supervisor
        self.scratch = scratch
        self.modules: dict[str, JitModule] = {}
        self.generators: dict[str, Mapping[str, Any]] = {}
        self.environment: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.log: list[str] = []
        self.remedy = ""
        """Of the first case that failed."""

    def results(self, study: str, warnings: Sequence[str]) -> JitResults:
        calls = [self._call(case, number) for number, case in enumerate(self.request.cases, 1)]
        if all(call.error for call in calls):
            raise FiprofError(f"no case could be measured, the first: {calls[0].case}: {calls[0].error}", self.remedy)
        warm_up, code = warm_up_commands(self.generators, [call for call in calls if not call.error])
        warm_up_s, base = self._warm_up(code)
        paths, size = jit_cache.layout(base)
        return JitResults(
            study=study,
            calls=calls,
            modules=sorted(self.modules.values(), key=lambda module: -(module.compile_s or 0.0)),
            cache_layout=paths,
            cache_bytes=size,
            warm_up=warm_up,
            warm_up_s=warm_up_s,
            environment=self.environment,
            warnings=[*warnings, *_ahead_warnings(self.environment, self.modules), *self.warnings],
            log=list(dict.fromkeys(self.log)),
            fiprof=fiprof.__version__,
        )

    def _call(self, case: Case, number: int) -> JitCall:
        """A case's first call with an empty cache, and in a new process with what that left."""
        cold, disk = (_probe_command(self.request, case, number, state, self.scratch) for state in (COLD, DISK))
        base = _base(self.scratch, number)
        try:
            first = self._probe(cold, f"{number}/{len(self.request.cases)} {case.id}: {COLD}")
        except _CaseError as error:
            self.progress.say(f"{case.id}: {error.message}")
            self.remedy = self.remedy or error.remedy
            return JitCall(case.id, None, None, None, [], [], error=error.message)
        if not first.modules:
            self.warnings.append(
                f"{case.id}: FlashInfer's JIT made no module for it; what its first call compiled otherwise, as "
                "kernels of CuTe DSL are, stands under launch"
            )
        builds = jit_cache.builds(base)
        self._learn(first, base)
        try:
            second = self._probe(disk, f"{number}/{len(self.request.cases)} {case.id}: {DISK}")
        except _CaseError as error:
            self.warnings.append(f"{case.id}: with the cache on disk it failed: {error.message}")
            second = None
        if second is not None and jit_cache.builds(base) != builds:
            self.warnings.append(f"{case.id}: the new process compiled again though the cache was full")
        return JitCall(
            case=case.id,
            cold_s=first.seconds,
            disk_s=second.seconds if second else None,
            memory_s=first.again_s,
            modules=list(first.modules),
            phases=phases(first.seconds, first.modules, builds),
            disk_phases=phases(second.seconds, second.modules, {}) if second else [],
            import_s=first.import_s,
        )

    def _probe(self, command: Command, name: str) -> Probed:
        """Raises _CaseError where the case failed, FiprofError where no case can work."""
        out = command.makes[0]
        finished = self._run(command, name)
        records = list(read_jsonl(out)) if out.exists() else []
        known = next((record for record in records if record["kind"] == "environment"), None)
        failure = next((record for record in records if record["kind"] == "failure"), None)
        if known:
            self.environment = self.environment or {key: value for key, value in known.items() if key != "kind"}
        if finished.outcome == "ok" and failure is None:
            return Probed.of(records)
        log = read_log(command.log)
        message, remedy = explain(failure, finished, log)
        if known and not re.search(DISK_FULL, log):
            raise _CaseError(message, remedy)
        raise FiprofError(message, remedy)

    def _run(self, command: Command, name: str) -> Finished:
        with self.progress.step(name):
            finished = self.supervisor.start(command).wait(lambda log: self.progress.detail(name, under_way(log)))
        if finished.outcome == "interrupted":
            raise JitInterrupted
        if finished.outcome == "timeout":
            raise FiprofError(f"{name}: {finished.message}", "--timeout gives it longer")
        if finished.exit_status is None:
            raise FiprofError(finished.message, "--python PATH names the interpreter that has torch and flashinfer")
        return finished

    def _learn(self, probed: Probed, base: Path) -> None:
        """Keep what a cold call tells of its modules and their generators."""
        in_cache = jit_cache.modules(base)
        self.log += jit_cache.said(base)
        for name, record in probed.modules.items():
            generator = record.get("generator")
            text = generator_text(generator)
            if generator and text:
                self.generators[name] = generator
            found = in_cache.get(name, JitModule(name, 0, [], [], None, []))
            if found.compile_s is None and not record["compiled_ahead"]:
                found = replace(found, compile_s=span_seconds(record, "build") or None)
            self.modules.setdefault(name, replace(found, generator=text, compiled_ahead=bool(record["compiled_ahead"])))

    def _warm_up(self, code: str) -> tuple[float | None, Path]:
        """Seconds of the warm-up in an empty cache, None where it did not work; and the fullest cache there is."""
        fallback = _base(self.scratch, len(self.request.cases))
        if not code:
            return None, fallback
        base = _base(self.scratch, 0)
        environment = _environment(self.request, base)
        command = Command(
            WARM_UP,
            (self.request.python, "-c", code),
            self.scratch / "logs" / "warm-up.log",
            environment,
            self.request.timeout_s,
        )
        with _file_errors(base):
            base.mkdir()
        finished = self._run(command, f"{WARM_UP}: all modules side by side, {COLD}")
        missing = set(self.generators) - set(jit_cache.modules(base))
        missing -= {name for name, module in self.modules.items() if module.compiled_ahead}
        if finished.outcome != "ok" or missing:
            why = explain(None, finished, read_log(command.log))[0] if finished.outcome != "ok" else "modules missing"
            self.warnings.append(f"the warm-up did not work here: {why}")
            return None, fallback
        return finished.duration_s, base


class JitInterrupted(Interrupted):
    """Somebody asked the measurement to end."""

    def __init__(self) -> None:
        FiprofError.__init__(self, "interrupted", "nothing of it is kept", exit_code=INTERRUPTED_EXIT)


class _CaseError(FiprofError):
    """One case failed; the others may work."""


def _probe_command(request: JitRequest, case: Case, number: int, state: str, scratch: Path) -> Command:
    base, name = _base(scratch, number), f"{number:02}-{state.replace(' ', '-')}"
    out = scratch / "logs" / f"{name}.jsonl"
    argv = (*probe_argv(request.python), case.argument, f"--cache={base}", f"--out={out}")
    log = scratch / "logs" / f"{name}.log"
    return Command(name, argv, log, _environment(request, base), request.timeout_s, makes=(out,))


def probe_argv(python: str) -> tuple[str, ...]:
    """How an interpreter starts the probe: as a module where it is fiprof's own, else by path."""
    if python == sys.executable:
        return (python, "-P", "-m", PROBE)

    return (python, str(Path(__file__).with_name("probe.py")))


def _base(scratch: Path, number: int) -> Path:
    """The cache folder of a case; 0 is the warm-up's."""
    return scratch / f"cache-{number}"


def _environment(request: JitRequest, base: Path) -> dict[str, str]:
    """Variables that keep everything that is compiled inside a folder, and the compilers honest."""
    env = {
        "FLASHINFER_WORKSPACE_BASE": str(base),
        "FLASHINFER_JIT_VERBOSE": "1",
        # Without this, verbose means a debug build: other flags, other code, other times.
        "FLASHINFER_JIT_DEBUG": "0",
        "TORCH_EXTENSIONS_DIR": str(base / "torch_extensions"),
        "TRITON_CACHE_DIR": str(base / "triton"),
        "CUDA_CACHE_PATH": str(base / "cuda"),
        "CUTE_DSL_CACHE_DIR": str(base / "cute_dsl"),
        **NO_COMPILER_CACHE,
    }
    if "FLASHINFER_CUBIN_DIR" in os.environ:
        env["FLASHINFER_CUBIN_DIR"] = str(base / "cubins")
    if request.gpu is not None:
        # nvidia-smi counts in PCI order; CUDA by default does not.
        env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(request.gpu)}
    return env


@contextlib.contextmanager
def _scratch(request: JitRequest, progress: Progress) -> Iterator[Path]:
    """A folder for the length of a block. Raises FiprofError where it cannot be made or the disk is nearly full."""
    with _file_errors(request.cache_dir):
        folder = Path(tempfile.mkdtemp(prefix="fiprof-jit-", dir=request.cache_dir)).resolve()
    try:
        free = shutil.disk_usage(folder).free
        if free < LEAST_FREE_BYTES:
            raise FiprofError(
                f"{request.cache_dir} has {free / 2**20:.0f} MiB left; compiling takes up to {LEAST_FREE_BYTES >> 20}",
                "free space, or name a folder on another disk with --cache-dir",
            )
        with _file_errors(folder):
            for number, _ in enumerate(request.cases, 1):
                _base(folder, number).mkdir()
        yield folder
    finally:
        if request.keep:
            progress.say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FiprofError(
            f"{path} cannot be written: {error.strerror}", "--cache-dir names another folder for the caches"
        ) from error


def _machine_warnings() -> list[str]:
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    if load <= BUSY_LOAD * cores:
        return []
    return [f"the machine was busy before the first cold call: load {load:.1f} on {cores} cores"]


def _ahead_warnings(environment: Mapping[str, Any], modules: Mapping[str, JitModule]) -> list[str]:
    """What an installed package brought ready made, so that its cold call is not cold."""
    ahead = [name for name, module in modules.items() if module.compiled_ahead]
    packages = ", ".join(name.replace("_", "-") for name in environment.get("compiled_ahead", ()))
    if ahead:
        return [f"{packages or 'flashinfer'} brings {', '.join(ahead)} ready made: their cold calls compile nothing"]
    if "flashinfer_jit_cache" in environment.get("compiled_ahead", ()):
        return ["flashinfer-jit-cache is installed but has none of these modules ready made"]
    return []
