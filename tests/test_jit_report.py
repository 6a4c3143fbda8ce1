"""What ``fiprof jit`` says of its results."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fiprof.flashinfer.jit import cache as jit_cache
from fiprof.flashinfer.jit import report as jit
from fiprof.flashinfer.results import JitCall, JitPhase, JitResults
from fiprof.reports.pages.page import Caution, Code, Table
from fiprof.reports.view import render
from tests.fakes import jit as stand_in


@pytest.fixture
def results(tmp_path: Path) -> JitResults:
    """The recorded module of rope, and calls with round numbers."""
    stand_in.fill(tmp_path, "rope")
    phases = [JitPhase("generate", 1.0), JitPhase("compile", 44.0), JitPhase("link", 2.0), JitPhase("load", 1.0)]
    return JitResults(
        study="",
        calls=[
            JitCall("rope[tokens=1,variant=inplace]", 50.0, 0.5, 0.002, ["rope"], [*phases, JitPhase("launch", 2.0)]),
            JitCall("rope[tokens=1,variant=llama31]", 30.0, 0.25, None, ["rope"], [JitPhase("compile", 30.0)]),
        ],
        modules=[
            dataclasses.replace(jit_cache.modules(tmp_path)["rope"], generator="flashinfer.jit.rope.gen_rope_module()")
        ],
        cache_layout=["a/", "a/b/", "a/b/rope.so", "tmp/"],
        cache_bytes=3 * 2**20,
        warm_up=["python -c 'import flashinfer'"],
        warm_up_s=40.0,
        environment={"cores": 16, "nvcc": "13.0.88", "packages": {"flashinfer-python": "0.6.13"}},
        warnings=["the machine was busy"],
    )


def sentences(results: JitResults) -> dict[str, str]:
    return {finding.anchor: finding.observation for finding in jit.findings(results)}


def test_findings(results: JitResults) -> None:
    assert sentences(results) == {
        "jit-first-calls": "The costliest first call, rope variant=inplace, takes 50.0 s with an empty cache, 0.500 s with "
        "the cache on disk, 2.00 ms with the module in memory.",
        # 74 of 80 s; 2, 2, 1 and 1.
        "jit-phases": "Of the 80 s of all cold calls, compile takes 92% (link 2.5%, launch 2.5%, generate 1.2%, load 1.2%).",
        # 44.153 + 21.789 s of compilers in 44.153 s.
        "jit-parallelism": "A module compiles 1.5 sources at a time on average on 16 cores; in 1 of 1 modules the slowest "
        "source alone takes 80% of the time or more.",
        "jit-warm-up": "Compiled side by side, the module is ready in 40 s, the interpreter's start and imports among "
        "them, against 80 s when each waits for its first call.",
    }  # fmt: skip


def test_a_finding_follows_the_numbers(results: JitResults) -> None:
    loads = dataclasses.replace(results.calls[0], phases=[JitPhase("load", 49.0), JitPhase("launch", 1.0)])
    changed = dataclasses.replace(results, calls=[loads], warm_up_s=None)
    assert sentences(changed)["jit-phases"].startswith("Of the 50 s of all cold calls, load takes 98%")
    assert "jit-warm-up" not in sentences(changed)
    # Two sources of the same length: the cores are what there is too few of.
    (module,) = results.modules
    equal = [JitPhase("compile", 10.0, "a.cu", 0.0), JitPhase("compile", 10.0, "b.cu", 10.0)]
    spread = dataclasses.replace(results, modules=[dataclasses.replace(module, compile_s=20.0, phases=equal)])
    finding = next(each for each in jit.findings(spread) if each.anchor == "jit-parallelism")
    assert "in 0 of 1 modules" in finding.observation
    assert "more cores, or a higher MAX_JOBS, help" in finding.implication


def test_nothing_measured(results: JitResults) -> None:
    failed = JitCall("rope", None, None, None, [], [], error="no such backend")
    empty = dataclasses.replace(
        results, calls=[failed], modules=[], warm_up=[], warm_up_s=None, cache_layout=[], cache_bytes=0
    )
    assert jit.findings(empty) == ()
    assert "rope: not measured: no such backend" in render(jit.document(empty), "table")


def test_modules(results: JitResults) -> None:
    (row,) = jit.module_rows(results)
    assert row.used_by == ("rope variant=inplace", "rope variant=llama31")
    assert row.slowest == "rope.cu"
    assert row.slowest_s == pytest.approx(44.153)
    assert row.parallelism == pytest.approx((44.153 + 21.789) / 44.153)
    assert row.mebibytes == 1024 / 2**20


def test_a_module_that_was_not_compiled_has_no_times(results: JitResults) -> None:
    (module,) = results.modules
    ahead = dataclasses.replace(module, compile_s=None, phases=[], compiled_ahead=True)
    (row,) = jit.module_rows(dataclasses.replace(results, modules=[ahead]))
    assert (row.compile_s, row.compilers_s, row.parallelism, row.slowest_s) == (None, None, None, None)
    assert "jit-parallelism" not in sentences(dataclasses.replace(results, modules=[ahead]))


def test_names_are_text(results: JitResults) -> None:
    (module,) = results.modules
    renamed = dataclasses.replace(results, modules=[dataclasses.replace(module, name="<script>\x1b[31m|")])
    assert "\\x1b" in render(jit.document(renamed), "table")
    assert "<script>" not in render(jit.document(renamed), "md")


def test_as_a_section_of_a_page(results: JitResults) -> None:
    section = jit.section(results)
    assert [block.text for block in section.blocks if isinstance(block, Caution)] == ["the machine was busy"]
    assert [block.text for block in section.blocks if isinstance(block, Code)] == ["python -c 'import flashinfer'"]
    assert [block.view.title for block in section.blocks if isinstance(block, Table)] == ["First calls", "Modules"]


def test_the_cache_is_shown_by_its_deepest_folders(results: JitResults) -> None:
    shown = render(jit.document(results), "table")
    assert "3.0 MiB, 1 file." in shown
    assert "(your home folder unless it is set): a/b/, tmp/." in shown
