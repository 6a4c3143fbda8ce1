"""What compiling costs, as a part of a study."""

from __future__ import annotations

from fiprof.flashinfer.jit import measure as jit
from fiprof.flashinfer.results import JIT
from fiprof.model import results
from fiprof.orchestrator.study.extras import ExtraRequest


def measure_jit(request: ExtraRequest) -> None:
    """Measure the cases' compilation, unless the study knows it already."""
    file = request.results / JIT
    if file.exists():
        return
    wanted = jit.JitRequest(cases=request.cases, python=request.python, gpu=request.gpu)
    found = jit.measure(wanted, request.progress, request.supervisor, wait=request.wait, study=request.study)
    file.parent.mkdir(exist_ok=True)
    results.write(file, found)
