"""What ``fiprof jit`` says of its results."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fiprof.flashinfer.jit import cache as jit_cache
from fiprof.flashinfer.jit import pages
from fiprof.flashinfer.jit import report as jit
from fiprof.flashinfer.results import JitCall, JitPhase, JitResults
from fiprof.reports.pages.page import Caution, Table
from fiprof.reports.writers import render
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


def test_what_follows_is_computed_from_the_calls_and_modules(results: JitResults) -> None:
    assert jit.cold_seconds(results) == 80
    assert jit.phase_totals(results) == {"compile": 74, "link": 2, "launch": 2, "generate": 1, "load": 1}
    found = jit.parallelism(results)
    assert found is not None and (found.modules, found.bound) == (1, 1)
    assert found.at_a_time == pytest.approx((44.153 + 21.789) / 44.153)
    assert len(jit.sentences(results)) == 4
    # Two sources of the same length, one after the other: the cores are what there is too few of.
    (module,) = results.modules
    equal = [JitPhase("compile", 10.0, "a.cu", 0.0), JitPhase("compile", 10.0, "b.cu", 10.0)]
    spread = dataclasses.replace(results, modules=[dataclasses.replace(module, compile_s=20.0, phases=equal)])
    assert jit.parallelism(spread) == jit.Parallelism(1.0, 1, 0)


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
    assert jit.parallelism(dataclasses.replace(results, modules=[ahead])) is None


def test_names_are_text(results: JitResults) -> None:
    (module,) = results.modules
    renamed = dataclasses.replace(results, modules=[dataclasses.replace(module, name="<script>\x1b[31m|")])
    assert "\\x1b" in render(jit.document(renamed), "table")
    assert "<script>" not in render(jit.document(renamed), "md")


def test_as_a_section_of_a_page(results: JitResults) -> None:
    section = pages.section(results)
    assert [block.text for block in section.blocks if isinstance(block, Caution)] == ["the machine was busy"]
    assert pages.warm_up(results).text == "python - <<'END'\nimport flashinfer\nEND"
    assert [block.view.title for block in section.blocks if isinstance(block, Table)] == ["First calls", "Modules"]
