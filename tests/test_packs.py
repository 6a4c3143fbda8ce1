"""A pack of somebody else's, installed beside fiprof: the one that docs/packs.md shows."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fiprof.analysis.expected import read_expectations
from fiprof.flashinfer import pack
from fiprof.model.results import CaseResult
from tests import study_fixture as fixture
from tests.conftest import REPOSITORY, Env, python_path, ran

DOCUMENT = (REPOSITORY / "docs/packs.md").read_text()
METADATA, MODULE, EXPECTATIONS = re.findall(r"```(?:toml|python)\n(.*?)```", DOCUMENT, re.DOTALL)

DOCUMENTS = """
import json, sys
from pathlib import Path
from fiprof.analysis import claims
from fiprof.analysis.study import load
from fiprof.reports.study import pages
study = load(Path(sys.argv[1]))
found = {item.claim.name: [item.verdict, len(item.tested)] for item in claims.results(study)}
print(json.dumps([found, pages(study)]))
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Environment in which the pack is installed: its module and its metadata are on the path."""
    site = tmp_path / "site"
    info = site / "saxpy_pack-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "saxpy_pack.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: saxpy-pack\nVersion: 1.0\n")
    groups = tomllib.loads(METADATA)["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{python_path()}"}


def saxpy(n: int, wide: bool) -> CaseResult:
    case = fixture.make_case("saxpy", {"n": n, "wide": wide}, 3.0 + n / (2000 if wide else 1000))
    kernel = dataclasses.replace(case.kernels[0], kernel="saxpy_kernel", kernel_full="saxpy_kernel()")
    return dataclasses.replace(case, kernels=[kernel])


def run(environment: Env, *argv: str) -> subprocess.CompletedProcess[str]:
    return ran(sys.executable, *argv, env=environment)


def test_its_claim_and_its_knowledge_appear_in_its_study(installed: Env, tmp_path: Path) -> None:
    cases = [saxpy(n, wide) for n in (1024, 4096, 16384) for wide in (False, True)]
    folder = fixture.write_study(tmp_path / "study", {"saxpy": cases}, jit=None, study="saxpy", title="")
    done = run(installed, "-c", DOCUMENTS, str(folder))
    assert done.returncode == 0, done.stderr
    found, shown = json.loads(done.stdout)
    assert found == {"wide-is-faster": ["confirmed", 3]}
    assert "wide loads are faster" in shown["final-report"]
    for words in ("Scaled vector addition", "A thread loads an element of each vector", "128-bit loads"):
        assert words in shown["kernel-dev-guide"]
    for name in ("final-report", "kernel-dev-guide"):
        foreign = ("decode", "prefill", "rope", "FA3", "not measured", "FlashInfer")
        # The version of FlashInfer stands in the environment that the fixture gives.
        assert [word for word in foreign if word in shown[name]] in ([], ["FlashInfer"]), name


def test_its_study_and_its_command_are_found(installed: Env) -> None:
    shown = run(installed, "-m", "fiprof", "--help").stdout
    assert re.search(r"^  saxpy-info +What the saxpy pack knows", shown, re.MULTILINE)
    assert run(installed, "-m", "fiprof", "saxpy-info").stdout == "one kernel\n"
    done = run(installed, "-m", "fiprof", "study", "nothing")
    assert (done.returncode, "flashinfer, saxpy" in done.stderr) == (2, True)


def test_a_pack_that_cannot_be_imported_is_named(installed: Env, tmp_path: Path) -> None:
    (tmp_path / "site/saxpy_pack.py").write_text("import nowhere")
    done = run(installed, "-m", "fiprof", "study", "saxpy")
    assert done.returncode == 1
    assert done.stderr.startswith("fiprof: the pack saxpy (saxpy_pack) cannot be imported: No module named 'nowhere'")
    done = run(installed, "-m", "fiprof", "saxpy-info")
    assert done.returncode == 1
    assert done.stderr.startswith("fiprof: the command saxpy-info (saxpy_pack:info) cannot be imported: No module")


def test_the_documented_expectations_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(EXPECTATIONS)
    (family,) = read_expectations(tmp_path / "ours.toml").family
    assert family.bandwidth and (family.name, family.bandwidth.least_tb_per_s) == ("norms", 1.8)


def test_every_function_of_flashinfers_pack_is_documented() -> None:
    functions = {name for name, item in vars(pack).items() if callable(item) and item.__module__ == pack.__name__}
    functions |= pack.ELSEWHERE.keys()
    assert all(callable(getattr(pack, name)) for name in functions)
    assert functions - {"__getattr__"} <= set(re.findall(r"`(\w+)\([\w, ]*\)`", DOCUMENT))
