"""fiprof.orchestrator.nsys: the argv, and what to make of nsys's words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fiprof.errors import FiprofError
from fiprof.model.settings import Settings
from fiprof.orchestrator import nsys, parse
from fiprof.orchestrator.collect import check_trace
from tests.nsys_exports import altered

WORKLOAD = ("python3", "-m", "fiprof.workloads", "run", "--case", "rmsnorm")


def test_profile_argv() -> None:
    argv = nsys.profile_argv(
        Path("nsys"), (2025, 3, 1), Path("r/trace.nsys-rep"), WORKLOAD, Settings(gpu_metrics_hz=10_000)
    )
    assert argv == (
        "nsys",
        "profile",
        "--output=r/trace.nsys-rep",
        "--force-overwrite=true",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "--cuda-memory-usage=true",
        "--gpu-metrics-devices=cuda-visible",
        "--gpu-metrics-frequency=10000",
        *WORKLOAD,
    )


def test_older_versions_know_the_singular_switch() -> None:
    argv = nsys.profile_argv(Path("nsys"), (2022, 4, 2), Path("t"), WORKLOAD, Settings(gpu_metrics_hz=1000))
    assert "--gpu-metrics-device=cuda-visible" in argv


def test_no_gpu_metrics() -> None:
    argv = nsys.profile_argv(Path("nsys"), (2025, 3, 1), Path("t"), WORKLOAD, Settings(gpu_metrics_hz=0))
    assert not [word for word in argv if "metrics" in word]


VERSIONS: tuple[tuple[int, ...], ...] = ((), (2024, 2, 3), (2025, 3, 1))


def test_export_argv() -> None:
    assert nsys.export_argv(Path("nsys"), Path("t.nsys-rep"), Path("t.sqlite")) == (
        "nsys",
        "export",
        "--type=sqlite",
        "--force-overwrite=true",
        "--output=t.sqlite",
        "t.nsys-rep",
    )
    payloads = {
        version: nsys.export_argv(Path("nsys"), Path("t"), Path("t.sqlite"), version)[4] for version in VERSIONS
    }
    assert payloads == {(): "--output=t.sqlite", (2024, 2, 3): "--output=t.sqlite", (2025, 3, 1): "--include-json=true"}


@pytest.mark.fault(
    "nsys's importer cannot start: exit status 0, only a .qdstrm is left",
    "the step fails; the missing libraries are named",
)
def test_importer_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "trace.qdstrm").write_bytes(b"x")
    with pytest.raises(FiprofError) as caught:
        nsys.check_report(tmp_path / "trace.nsys-rep", "Importer error status: Importation failed.\n")
    assert caught.value.message == (
        "nsys could not turn its data into a report: Importer error status: Importation failed."
    )
    assert "libdw1" in caught.value.remedy


@pytest.mark.fault("nsys leaves an empty report", "the step fails with nsys's last line")
def test_empty_report(tmp_path: Path) -> None:
    (tmp_path / "trace.nsys-rep").touch()
    with pytest.raises(FiprofError, match="nsys made no report: the disk is full"):
        nsys.check_report(tmp_path / "trace.nsys-rep", "…\nthe disk is full\n")


@pytest.mark.fault("an nsys that drops the ranges of a newer nvtx", "the step fails; versions that fit are named")
def test_no_ranges_names_the_versions_that_fit(tmp_path: Path) -> None:
    with pytest.raises(FiprofError) as caught:
        check(tmp_path, "DELETE FROM NVTX_EVENTS", nvtx_incompatible=True)
    assert caught.value.message == "nsys 2024.2.3 saw no ranges of nvtx 0.2.17: the two do not fit each other"
    assert caught.value.remedy == nsys.NVTX_REMEDY


@pytest.mark.fault("a workload that launches no kernel, under nsys", "the step fails in one line")
def test_no_kernels(tmp_path: Path) -> None:
    with pytest.raises(FiprofError, match="nsys saw no kernel"):
        check(tmp_path, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")


@pytest.mark.fault(
    "a workload that dies in the middle while nsys says that all is well", "the step fails; the range is named"
)
def test_ranges_that_never_ended(tmp_path: Path) -> None:
    with pytest.raises(FiprofError, match=r"ended inside measure > rope\[.*\] > iter 19: the trace has nothing after"):
        check(tmp_path, 'UPDATE NVTX_EVENTS SET "end" = NULL WHERE "end" > 3802145000')


def check(folder: Path, sql: str, *, nvtx_incompatible: bool = False) -> int:
    """Check a recorded collect's trace after some SQL."""
    (folder / "nsys").mkdir()
    altered(folder / "nsys", sql)
    summary = dataclasses.replace(parse.parse_nsys(folder, folder / "tables"), nvtx_incompatible=nvtx_incompatible)
    return check_trace(folder / "tables", summary, "2024.2.3", "0.2.17")
