"""Baselines, and what a gate decides: slower than the limit and than the noise, and nothing else, fails; docs/examples/gate.yml as
GitHub's runner takes it: its own shell steps, with the stand-ins for GPU, tools and actions."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import JUnitXml

from fiprof.analysis.comparison import measured_result
from fiprof.analysis.comparison.measured_result import Decision, Gate, GatedCase, MeasuredComparison, Side
from fiprof.cli.commands.gate import baseline_command, gate_command
from fiprof.errors import FiprofError
from fiprof.model import baselines
from fiprof.model.baselines import NamedBaseline, read_baseline, write_baseline
from fiprof.model.manifest import read_manifest
from fiprof.reports import measured_table
from tests.conftest import REPOSITORY, Completed, Fiprof, fake_programs
from tests.recorded_runs import RUNS, replayable
from tests.test_cli import KERNEL
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


WORKFLOW = REPOSITORY / "docs/examples/gate.yml"

SOFTMAX, COST = KERNEL.split("    def setup")
KERNELS = f"""{SOFTMAX}    {{softmax}}

    def setup{COST}
class Gelu(Softmax):
    name, summary = "gelu", "gelu of rows"
    {{gelu}}
"""
"""docs/own-kernel.md's, and another one."""

STUBS = {
    # python3 -m venv FOLDER
    "python3": f"""mkdir -p "$3/bin"
printf '#!/bin/sh\\n' > "$3/bin/pip"
printf '#!/bin/sh\\nexec {sys.executable} -m fiprof "$@"\\n' > "$3/bin/fiprof"
chmod +x "$3/bin/pip" "$3/bin/fiprof"
""",
    # No comment yet: there is none to edit.
    "gh": 'case "$*" in *--edit-last*) exit 1;; esac\necho "$1 $2 $3" > "$COMMENTED"\ncat "$5" >> "$COMMENTED"\n',
}


class Machine:
    """A self-hosted runner with a checkout, and GitHub's cache."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkout = folder, folder / "checkout"
        programs = fake_programs(folder, replayable("all"))
        for name, text in STUBS.items():
            (folder / "programs" / name).write_text(f"#!/bin/sh\n{text}")
            (folder / "programs" / name).chmod(0o755)
        self.env = {
            **programs, "PATH": f"{folder / 'programs'}:{os.environ['PATH']}", "HOME": str(folder),
            "RUNNER_TEMP": str(folder / "temp"), "GITHUB_ACTIONS": "true", "GITHUB_BASE_REF": "main",
            "GITHUB_PATH": str(folder / "path"), "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "COMMENTED": str(folder / "comment"),
        }  # fmt: skip
        self.done: dict[str, Completed] = {}
        self.checkout.mkdir()
        git(self.checkout, "init", "--quiet", "--initial-branch=main")

    def commit(self, softmax: str = "pass", gelu: str = "pass") -> None:
        """A commit with these bodies of the workloads."""
        (self.checkout / "kernels.py").write_text(KERNELS.format(softmax=softmax, gelu=gelu))
        git(self.checkout, "add", "kernels.py")
        git(self.checkout, "commit", "--quiet", "--message", f"{softmax} {gelu}")

    def job(self, event: str) -> None:
        """Run the workflow's job in a clean checkout; ``done`` has its shell steps by name."""
        import yaml  # here: the second Python of CI has none, and imports this file

        git(self.checkout, "clean", "--quiet", "-dffx")
        facts = {
            "github.event_name": event, "github.sha": git(self.checkout, "rev-parse", "HEAD"), "github.token": "token",
            "github.event.pull_request.number": "7",
        }  # fmt: skip
        (job,) = yaml.safe_load(WORKFLOW.read_text())["jobs"].values()
        assert job["runs-on"][0] == "self-hosted"
        # The machine's own interpreter is the stand-in.
        env = {**self.env, **{key: str(value) for key, value in job["env"].items() if key != "FIPROF_PYTHON"}}
        for name in ("summary", "path"):
            (self.folder / name).write_text("")
        self.done = {}
        for step in job["steps"]:
            failed = any(done.returncode for done in self.done.values())
            if not self._wanted(step.get("if", ""), facts, failed=failed):
                continue
            if "uses" in step:
                self._act(step["uses"].partition("@")[0], step.get("with", {}))
                continue
            own = {key: _substituted(str(value), facts) for key, value in step.get("env", {}).items()}
            self.done[step["name"]] = self._shell(_substituted(step["run"], facts), {**env, **own})

    def gate(self, arguments: str, **env: str) -> Completed:
        """``fiprof gate`` in the checkout, with main's archive."""
        archive = {"FIPROF_ARTIFACTS": str(self.folder / "cache"), "GITHUB_ACTIONS": "", "PYTHONSAFEPATH": "1"}
        return self._shell(f"{sys.executable} -m fiprof gate {arguments}", {**self.env, **archive, **env})

    def _wanted(self, condition: str, facts: Mapping[str, str], *, failed: bool) -> bool:
        if not condition:
            return not failed
        found = re.sub(r"github[\w.]+", lambda name: repr(facts[name[0]]), condition.replace("&&", "and"))
        calls = {"always": lambda: True, "hashFiles": lambda name: "x" * (self.checkout / name).exists()}
        return bool(eval(found, {"__builtins__": {}}, calls)) and ("always()" in condition or not failed)

    def _shell(self, text: str, env: dict[str, str]) -> Completed:
        path = [*(self.folder / "path").read_text().split(), env["PATH"]]
        return subprocess.run(
            ["bash", "-e", "-c", text], cwd=self.checkout, env={**env, "PATH": os.pathsep.join(path)},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def _act(self, action: str, given: dict[str, Any]) -> None:
        """What an action does with files; the cache has one entry."""
        cache, kept = self.folder / "cache", self.folder / "kept"
        paths = [self.checkout / path for path in str(given.get("path", "")).split()]
        if action == "actions/cache/save":
            shutil.rmtree(cache, ignore_errors=True)
            shutil.copytree(paths[0], cache)
        elif action == "actions/cache/restore" and cache.exists():
            shutil.copytree(cache, paths[0])
        elif action == "actions/upload-artifact":
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir()
            for path in filter(Path.exists, paths):
                path.rename(kept / path.name)

    def counts(self) -> tuple[int, int, int, int]:
        """Tests, failures, errors and skipped ones of the kept JUnit file."""
        (suite,) = JUnitXml.fromfile(str(self.folder / "kept/gate.xml"))
        return suite.tests, suite.failures, suite.errors, suite.skipped

    def annotations(self) -> list[tuple[str, str]]:
        """Level and workload of each."""
        return re.findall(r"^::(\w+) title=fiprof gate%3A (\w+) ", self.done["Gate"].stderr, re.MULTILINE)


def _substituted(text: str, facts: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda name: facts[name[1]], text)


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """After a push to main."""
    made = Machine(tmp_path_factory.mktemp("runner"))
    made.commit()
    made.job("push")
    assert [done.stderr for done in made.done.values() if done.returncode] == []
    git(made.checkout, "update-ref", "refs/remotes/origin/main", "HEAD")
    return made


@pytest.fixture
def machine(pushed: Machine) -> Machine:
    """With main checked out, whatever a test before did."""
    git(pushed.checkout, "reset", "--quiet", "--hard", "origin/main")
    return pushed


def test_a_slower_kernel_fails_the_job_and_a_flaky_one_is_said(machine: Machine) -> None:
    machine.commit(softmax="fake_slower = 1.05", gelu="fake_spread = 0.05")
    machine.job("pull_request")
    assert machine.done["Gate"].returncode == 3, machine.done["Gate"].stderr
    assert machine.counts() == (4, 2, 0, 2)
    assert machine.annotations() == [("error", "softmax")] * 2 + [("warning", "gelu")] * 2
    comment = (machine.folder / "comment").read_text()
    assert comment.startswith("pr comment 7\n### 2 of 4 cases slower than main by 3% or more")
    assert "cannot be told" in comment
    assert (machine.folder / "summary").read_text() == comment.partition("\n")[2]
    # The new baseline is main's alone.
    assert "New baseline" not in machine.done


def test_a_kernel_that_does_not_run_fails_the_job_also_without_a_baseline(machine: Machine) -> None:
    shutil.move(machine.folder / "cache", machine.folder / "other")
    machine.commit(gelu="fake_fails = True")
    machine.job("pull_request")
    shutil.move(machine.folder / "other", machine.folder / "cache")
    assert machine.done["Gate"].returncode == 1, machine.done["Gate"].stderr
    assert machine.counts() == (4, 0, 2, 0)
    assert 'name="fiprof gate against git:origin/main"' in (machine.folder / "kept/gate.xml").read_text()
    assert (machine.folder / "comment").exists()


def test_cases_that_one_side_lacks_are_said(machine: Machine) -> None:
    machine.commit(gelu="name = 'swish'")
    done = machine.gate("--against main --workload kernels.py:softmax --rows 1024,8 --format json --strict")
    assert done.returncode == 1, done.stderr
    assert "fiprof: main has gelu[rows=1024] and gelu[rows=4096], this tree" in done.stderr
    found = json.loads(done.stdout)
    assert found["schema"] == "gate/1" and found["run"].endswith("compare-softmax")
    assert {row["case"]: row["decision"] for row in found["rows"]} == {
        "gelu[rows=1024]": "gone", "gelu[rows=4096]": "gone", "softmax[rows=8]": "new", "softmax[rows=1024]": "passed",
    }  # fmt: skip


@pytest.mark.parametrize("grew", ["launching FAKE_HOST_US=900", "memory FAKE_MEMORY=110000000"])
def test_what_grew_beside_the_time_fails_a_strict_gate(machine: Machine, grew: str) -> None:
    decision, env = grew.split()
    done = machine.gate(f"--against main --now env:{env} --format json --strict --github")
    assert done.returncode == 1, done.stderr
    assert {row["decision"] for row in json.loads(done.stdout)["rows"]} == {decision}
    assert done.stderr.count("The limit is 3%25.") == 4


@pytest.mark.fault("a process ends in the middle of a gate's rounds", "JUnit XML and an annotation say why")
def test_a_gate_that_could_not_measure_says_so_where_ci_looks(machine: Machine) -> None:
    done = machine.gate("--against main --github --junit broken.xml --comment broken.md", FAKE_DIES="softmax")
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    (suite,) = JUnitXml.fromfile(str(machine.checkout / "broken.xml"))
    assert (suite.tests, suite.errors) == (1, 1)
    assert (machine.checkout / "broken.md").read_text().startswith("### fiprof gate against main\n\nthe run failed: ")
    assert re.search("^::error title=fiprof gate against main::the run failed: ", done.stderr, re.MULTILINE)


@pytest.mark.fault("the workload of a stranger's baseline is a file that came with it", "`gate` does not run it")
def test_code_that_came_with_an_archive_is_not_run(machine: Machine) -> None:
    archive = machine.checkout / "handed-over"
    shutil.copytree(machine.folder / "cache", archive)
    (archive / "evil.py").write_text("open('ran', 'w')")
    (run,) = archive.glob("*[0-9]-softmax-gelu/run.json")
    run.write_text(run.read_text().replace("kernels.py:softmax", "handed-over/evil.py:softmax"))
    done = machine.gate("--against main --artifacts handed-over")
    assert (done.returncode, "git does not track" in done.stderr) == (1, True), done.stderr
    assert not (machine.checkout / "ran").exists()


def test_the_example_of_the_help(machine: Machine) -> None:
    done = machine.gate(str(gate_command.epilog).removeprefix("Example: fiprof gate "))
    assert (done.returncode, done.stdout.count("\n# ")) == (0, 13), done.stderr
