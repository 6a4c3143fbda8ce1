"""FlashInfer's cache on disk: ninja's logs and build files, recorded and made by the real ninja."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fiprof.errors import FiprofError
from fiprof.flashinfer.jit import cache as jit_cache
from tests.fakes import jit as stand_in

DECODE = "batch_decode_with_kv_cache_dtype_q_f16_dtype_kv_f16_dtype_o_f16_dtype_idx_i32_head_dim_qk_128_head_dim_vo_128_posenc_0_use_swa_False_use_logits_cap_False"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A cache with the recorded modules."""
    for name in ("rope", DECODE):
        stand_in.fill(tmp_path, name)
    return tmp_path


def test_a_module_as_it_was_built(base: Path) -> None:
    rope = jit_cache.modules(base)["rope"]
    assert rope.sources == ["flashinfer/data/csrc/rope.cu", "flashinfer/data/csrc/flashinfer_rope_binding.cu"]
    assert rope.bytes == 1024
    assert rope.compile_s == pytest.approx(44.249)
    expected: list[object] = [
        ("compile", "flashinfer/data/csrc/rope.cu", pytest.approx(44.153), 0.0),
        ("compile", "flashinfer/data/csrc/flashinfer_rope_binding.cu", pytest.approx(21.789), pytest.approx(0.001)),
        ("link", "", pytest.approx(0.096), pytest.approx(44.153)),
    ]
    assert [(phase.name, phase.detail, phase.seconds, phase.start_s) for phase in rope.phases] == expected
    assert rope.flags[:3] == ["-DPy_LIMITED_API=0x03090000", "-D_GLIBCXX_USE_CXX11_ABI=1", "--compiler-options=-fPIC"]
    assert "-gencode=arch=compute_90a,code=sm_90a" in rope.flags
    assert "-O3" in rope.flags


def test_nothing_of_the_machine_is_kept(base: Path) -> None:
    for module in jit_cache.modules(base).values():
        assert not [text for text in (*module.flags, *module.sources) if text.startswith(("/", "-I", "-isystem"))]


def test_generated_sources(base: Path) -> None:
    sources = jit_cache.modules(base)[DECODE].sources
    assert sorted(sources) == [
        f"generated/{DECODE}/{name}"
        for name in ("batch_decode.cu", "batch_decode_jit_binding.cu", "batch_decode_kernel.cu")
    ]


def test_one_log_for_all_modules_as_flashinfer_0_5_keeps_it(base: Path) -> None:
    folder = stand_in.folder(base, "rope").parent
    lines = ["# ninja log v5"]
    for name in ("rope", DECODE):
        (folder / name / ".ninja_log").unlink()
        lines += [
            f"{begin}\t{end}\t1700000000\t{name}/{file}\tabc"
            for begin, end, file in ((0, 2000, "a.o"), (2000, 2100, f"{name}.so"))
        ]
    (folder / ".ninja_log").write_text("\n".join(lines) + "\n")
    assert jit_cache.modules(base)["rope"].compile_s == pytest.approx(2.1)
    assert {name: len(builds) for name, builds in jit_cache.builds(base).items()} == {"rope": 2, DECODE: 2}


def test_layout(base: Path) -> None:
    paths, size = jit_cache.layout(base)
    assert ".cache/flashinfer/0.6.13/90a/cached_ops/rope/" in paths
    assert ".cache/flashinfer/0.6.13/90a/cached_ops/rope/build.ninja" in paths
    assert size == sum(path.stat().st_size for path in base.rglob("*") if path.is_file())


@pytest.mark.parametrize("version", [5, 6, 7])
def test_versions_of_the_log(tmp_path: Path, version: int) -> None:
    log = tmp_path / ".ninja_log"
    log.write_text(
        f"# ninja log v{version}\n1\t900\t1700000000\ta.o\t1f\n2\t500\t1700000000\tb.o\t2f\n900\t950\t0\tlib.so\t3f\n"
    )
    builds = jit_cache.read_builds(log)
    assert [(build.output, build.links) for build in builds] == [("a.o", False), ("b.o", False), ("lib.so", True)]
    assert [build.seconds for build in builds] == pytest.approx([0.899, 0.498, 0.05])


def test_the_last_build_of_an_output_counts_and_a_line_cut_short_does_not(tmp_path: Path) -> None:
    log = tmp_path / ".ninja_log"
    log.write_text("# ninja log v7\n0\t900\t1\ta.o\t1f\n0\t400\t1\ta.o\t1f\n0\t7")
    assert [build.end_s for build in jit_cache.read_builds(log)] == [0.4]


@pytest.mark.parametrize("text", ["", "# ninja log v99\n", "\x00\xff garbage"])
def test_a_log_that_is_none(tmp_path: Path, text: str) -> None:
    log = tmp_path / ".ninja_log"
    log.write_text(text)
    with pytest.raises(FiprofError, match=r"\.ninja_log is (no ninja log|empty)"):
        jit_cache.read_builds(log)


def test_no_log(tmp_path: Path) -> None:
    assert jit_cache.read_builds(tmp_path / ".ninja_log") == ()


@pytest.mark.skipif(not (shutil.which("ninja") and shutil.which("c++")), reason="needs ninja and a C++ compiler")
def test_a_real_build(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "flashinfer" / "1.0" / "90a" / "cached_ops" / "mine"
    folder.mkdir(parents=True)
    (tmp_path / "mine.cc").write_text("int f() { return 1; }\n")
    (tmp_path / "other one.cc").write_text("int g() { return 2; }\n")
    (folder / "build.ninja").write_text(
        "cflags = -O2 $\n    -fPIC $\n    -I/usr/include\n"
        "rule compile\n  command = c++ $cflags -c $in -o $out\n"
        "rule link\n  command = c++ -shared $in -o $out\n"
        f"build mine.o: compile {tmp_path}/mine.cc\n"
        f"build other.o: compile {tmp_path}/other$ one.cc\n"
        "build mine.so: link mine.o other.o\n"
    )
    subprocess.run(["ninja", "-C", str(folder)], check=True, capture_output=True)
    module = jit_cache.modules(tmp_path)["mine"]
    assert module.sources == ["mine.cc", "other one.cc"]
    assert module.flags == ["-O2", "-fPIC"]
    assert sorted((phase.name, phase.detail) for phase in module.phases) == [
        ("compile", "mine.cc"), ("compile", "other one.cc"), ("link", ""),
    ]  # fmt: skip
    assert module.compile_s == pytest.approx(max((p.start_s or 0) + p.seconds for p in module.phases))
    assert module.bytes == (folder / "mine.so").stat().st_size
