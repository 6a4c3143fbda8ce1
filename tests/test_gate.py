"""Baselines, and what a gate decides: slower than the limit and than the noise, and nothing else, fails."""

import json
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import JUnitXml

from fiprof.analysis.comparison import measured_result
from fiprof.analysis.comparison.measured_result import Decision, Gate, GatedCase, MeasuredComparison, Side
from fiprof.cli.commands.gate import baseline_command
from fiprof.errors import FiprofError
from fiprof.model import baselines
from fiprof.model.baselines import NamedBaseline, read_baseline, write_baseline
from fiprof.model.manifest import read_manifest
from fiprof.reports import measured_table
from tests.conftest import Fiprof
from tests.recorded_runs import RUNS
from tests.test_strangers import git

Times = Sequence[Sequence[float]]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MAIN = NamedBaseline("main", "20261121-121126-decode", COMMIT, "2026-11-22T10:00:00+00:00", "ada@h200")
RUN = read_manifest(RUNS["decode"])


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with one run, in a checkout with one commit."""
    folder = tmp_path / "artifacts" / RUNS["decode"].name
    folder.mkdir(parents=True)
    shutil.copy(RUNS["decode"] / "run.json", folder)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "first")
    return tmp_path / "artifacts"


def test_a_baseline_is_set_shown_replaced_and_removed(archive: Path, fiprof: Fiprof) -> None:
    first = fiprof("baseline", "set", "main", "latest")
    assert (first.returncode, first.stdout) == (0, "artifacts/baselines/main.json\n")
    assert "names no commit" in first.stderr
    assert fiprof("baseline", "set", "main", RUNS["decode"].name, "--commit", "HEAD").returncode == 0
    (row,) = json.loads(fiprof("baseline", "list", "--format", "json").stdout)["rows"]
    assert (row["baseline"], row["run"], row["commit"], len(row["cases"])) == (
        "main", RUNS["decode"].name, git(archive.parent, "rev-parse", "HEAD"), 8,
    )  # fmt: skip
    (run,) = json.loads(fiprof("runs", "--format", "json").stdout)["rows"]
    assert run["baselines"] == ["main"]
    for command in baseline_command.commands.values():
        assert fiprof(*shlex.split(str(command.epilog))[2:]).returncode == 0, command.name
    assert fiprof("baseline", "show", "main").returncode == 2
    assert (archive / RUNS["decode"].name / "run.json").exists()


def test_the_commit_is_that_of_the_run(archive: Path, fiprof: Fiprof) -> None:
    path = archive / RUNS["decode"].name / "run.json"
    manifest = json.loads(path.read_text())
    for state, status, said in (("-dirty", 1, "changes that are in no commit"), ("", 0, "")):
        manifest["environment"]["git"] = f"0123456789ab{state}"
        path.write_text(json.dumps(manifest))
        assert said in fiprof("baseline", "set", "main", "latest", status=status).stderr
    assert read_baseline(archive, "main").commit == "0123456789ab"


@given(st.text(max_size=70) | st.sampled_from(["../x", "a/b", "run", "study", "-x", ".x", "a" * 65, "a\n", "main-1.2"]))
def test_a_name_makes_a_file_of_the_folder_or_is_refused(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    root = tmp_path_factory.mktemp("archive")
    try:
        baselines.require_name(name)
    except FiprofError:
        with pytest.raises(FiprofError):
            read_baseline(root, name)
        with pytest.raises(ValueError, match="is no name of a baseline"):
            replace(MAIN, name=name)
    else:
        assert write_baseline(root, replace(MAIN, name=name)).parent == root / "baselines"
        assert baselines.names(root) == [name] and read_baseline(root, name) == replace(MAIN, name=name)


@pytest.mark.fault("a link has the name of a baseline or of their folder", "no command follows it, exit status 1")
@pytest.mark.parametrize("link", ["baselines/main.json", "baselines"])
def test_links_are_not_followed(archive: Path, fiprof: Fiprof, tmp_path: Path, link: str) -> None:
    (tmp_path / "outside").mkdir()
    outside = write_baseline(tmp_path / "outside", MAIN)
    (archive / link).parent.mkdir(exist_ok=True)
    (archive / link).symlink_to(outside.parent if link == "baselines" else outside)
    before = outside.read_bytes()
    for words in (("set", "main", "latest"), ("show", "main")):
        fiprof("baseline", *words, status=1)
    fiprof("baseline", "remove", "main")
    assert outside.read_bytes() == before


@pytest.mark.fault("a baseline's file is damaged, or names a path or an option", "one line with the way out")
@pytest.mark.parametrize(
    "change",
    [{"run": "../../home"}, {"commit": "--output=x"}, {"name": "other"}, {"schema_version": 99}, {"run": None}],
)
def test_a_strangers_baseline(archive: Path, fiprof: Fiprof, change: dict[str, object]) -> None:
    path = write_baseline(archive, MAIN)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    done = fiprof("baseline", "show", "main")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 2)
    assert fiprof("baseline", "remove", "main").returncode == 0


def comparison(a: Times, b: Times) -> MeasuredComparison:
    """Of cases ``case0``, ``case1``, …: times of each process."""
    names = [(f"case{index}", f"case{index}") for index in range(len(a[0]))]
    sides = Side(f"git:{COMMIT}", COMMIT), Side("here")
    return MeasuredComparison(*sides, measured_result.compared(names, a, b), "ABBAABBAAB", 6, 0, True)


def gated(a: Times, b: Times, *, limit: float = 3.0, strict: bool = False) -> Gate:
    return measured_result.gate("main", RUN, comparison(a, b), max_slowdown_pct=limit, strict=strict)


STEADY = ((100.0,), (100.1,), (99.9,), (100.05,), (99.95,))


def times(factor: float, spread: float = 1.0) -> tuple[tuple[float], ...]:
    return tuple((100 * factor + (each[0] - 100) * spread,) for each in STEADY)


@pytest.mark.parametrize(
    ("a", "b", "limit", "expected"),
    [
        pytest.param(STEADY, times(1.05), 3.0, Decision.SLOWER, id="slower than limit and noise"),
        pytest.param(STEADY, times(1.20), 3.0, Decision.SLOWER, id="20 %"),
        pytest.param(STEADY, times(1.02), 3.0, Decision.WITHIN, id="slower than the noise alone"),
        pytest.param(STEADY, times(1.031), 3.0, Decision.SLOWER, id="just above the limit"),
        pytest.param(times(1, 40), times(1.05, 40), 3.0, Decision.CANNOT_TELL, id="slower than the limit alone"),
        pytest.param(times(1, 40), times(1.05, 40), 20.0, Decision.PASSED, id="a limit beyond the noise"),
        pytest.param(STEADY, times(1.001), 3.0, Decision.PASSED, id="the same"),
        pytest.param(STEADY, times(0.9), 3.0, Decision.FASTER, id="faster"),
        pytest.param(times(1, 40), times(0.99, 40), 3.0, Decision.CANNOT_TELL, id="noise around nothing"),
    ],
)
def test_decisions(a: Times, b: Times, limit: float, expected: Decision) -> None:
    found = gated(a, b, limit=limit)
    (case,) = found.cases
    assert (case.decision, found.failed) == (expected, expected is Decision.SLOWER)
    assert gated(a, b, limit=limit, strict=True).failed == (expected in (Decision.SLOWER, Decision.CANNOT_TELL))
    assert (case.processes_needed is not None) == (expected is Decision.CANNOT_TELL)


def test_a_spread_that_grew_is_a_finding_and_fails_nothing() -> None:
    """About the same mean; not where it shrank."""
    steady = (*STEADY, (100.03,), (99.97,))
    wide = ((96.0,), (103.0,), (98.0,), (105.0,), (98.2,), (102.0,), (97.0,))
    for a, b, expected in ((steady, wide, ["spread_grew"]), (wide, steady, [])):
        found = gated(a, b, limit=50.0)
        for document in (measured_table.gate_document(found), measured_table.document(found.comparison)):
            assert [getattr(each, "kind", "") for each in document.shown[0].warnings] == expected
        assert not found.failed


def test_hostile_names_break_neither_junit_nor_annotations() -> None:
    ids = [f"{number}\n::error::%0A,:\x1b<&]]>" for number in range(12)]
    others = [GatedCase(each, Decision.GONE, reason=f"{each}\0") for each in ids]
    compared = comparison(STEADY, STEADY)
    found = measured_result.gate("main", RUN, compared, max_slowdown_pct=3.0, strict=False, others=others)
    (suite,) = JUnitXml.fromstring(measured_table.junit(found))
    assert (suite.tests, suite.skipped) == (13, 12)
    commands = measured_table.github_lines(found)
    # Ten of a level are shown: nine of the cases, and how many more there are.
    assert len(commands) == 10
    assert all(re.fullmatch(r"::warning title=[^,:\n]*::(?:[^%\n]|%25)*", each) for each in commands)
