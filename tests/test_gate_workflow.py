"""docs/examples/gate.yml as GitHub's runner takes it: its own shell steps, with the stand-ins for GPU, tools and actions."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

from fiprof.cli.commands.gate import gate_command
from tests.conftest import REPOSITORY, Completed, fake_programs
from tests.recorded_runs import replayable
from tests.test_cli import KERNEL
from tests.test_strangers import git

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
