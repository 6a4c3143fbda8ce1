"""The command line as a whole: help, examples, exit statuses, what it imports."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import click
import pytest

from fiprof.cli.main import cli
from tests.conftest import Fiprof, python_path, ran
from tests.nsys_exports import FIVE_KERNELS
from tests.recorded_runs import RUNS, copied, invoke, parsed, profiled, replayed
from tests.reports_fixture import RAW
from tests.test_workloads import USERS_OWN

COMMANDS = cli.list_commands(click.Context(cli))


def epilog(name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    return str(command.epilog if command else "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_its_help_with_an_example(name: str) -> None:
    assert re.match(r"Example: fiprof " + name, epilog(name))
    assert "Example: fiprof" in invoke(name, "--help")[1][-300:]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("capture", "env", "gate")])
def test_the_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "story":  # is told of programs
        shutil.copytree(profiled("llama").path, tmp_path / "artifacts" / profiled("llama").path.name)
    elif name in ("pack", "parse"):
        copied("prefill-decode-rope", tmp_path / "artifacts")
    elif name != "import":
        run = replayed("decode" if name == "compare" else "all").path
        shutil.copytree(run, tmp_path / "artifacts" / run.name)
    (tmp_path / "my_kernels.py").write_text(USERS_OWN)
    shutil.copy(FIVE_KERNELS, tmp_path / "trace.sqlite")
    shutil.copy(RAW, tmp_path / "raw.csv")
    monkeypatch.chdir(tmp_path)
    status, printed = invoke(*shlex.split(epilog(name).removeprefix("Example: fiprof ")))
    # The recorded run is packed already.
    assert status == 0 and (printed or name in ("pack", "import"))
    assert name != "kernels" or "--width" in printed


@pytest.mark.fault("the ncu that is named does not exist", "`env` names it and how to install it, exit status 1")
def test_env_names_the_remedies(faked: Fiprof) -> None:
    done = faked("env", FIPROF_NCU="/no/such/ncu")
    assert done.returncode == 1
    assert re.search(r"^ncu +missing +/no/such/ncu --version does not run", done.stdout, re.MULTILINE)
    assert "ncu: install Nsight Compute" in done.stdout
    assert re.search(r"^nsys +ok +2025\.3\.1", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("stalls latest", "fiprof: artifacts holds no run\n  fiprof collect --kernel prefill makes one\n"),
        ("collect", "fiprof: which kernel?\n"),
        ("collect --kernel prefil", "fiprof: there is no workload 'prefil'\n"),
        ("collect --kernel rope --batch 3", "fiprof: rope has no parameter --batch\n"),
        ("collect --kernel rope --tool perf", "Invalid value for '--tool': perf is not a comma list of nsys, ncu\n"),
        ("collect --kernel rope --replay latest", "fiprof: --replay takes its cases from the run\n"),
        ("collect --workload x.py:mine", "fiprof: x.py: there is no such file\n"),
        ("profile -- no-such-program", "no-such-program was not found, or cannot be run"),
        ("profile --capture cuda -- true", "--capture cuda\n  cudaProfilerApi, or nvtx:NAME"),
        ("profile --keep-running -- true", "--keep-running traces a window"),
    ],
)
def test_wrong_use(faked: Fiprof, arguments: str, words: str) -> None:
    done = faked(*arguments.split())
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    assert words in done.stderr


@pytest.mark.fault("the reader of a pipe goes away", "a quiet end")
def test_a_reader_that_goes_away_is_no_error() -> None:
    run = shlex.quote(str(parsed("all").path))
    shell = f"{shlex.quote(sys.executable)} -m fiprof stalls {run} --format json | head -n 1"
    done = ran("bash", "-o", "pipefail", "-c", shell, env={"PYTHONPATH": python_path(), "PATH": "/usr/bin:/bin"})
    assert "BrokenPipe" not in done.stderr
    assert done.stdout == "{\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("fiprof verd", ["verdict"]),
        ("fiprof show 20261121-1", [path.name for path in RUNS.values() if path.name.startswith("20261121-1")]),
        ("fiprof show --kern", ["--kernel"]),
    ],
)
def test_the_shell_completes_commands_options_and_runs(words: str, offered: list[str]) -> None:
    code = "import sys; sys.argv = ['fiprof']; from fiprof.cli.main import main; main()"
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_FIPROF_COMPLETE": "bash_complete"}
    env = {"PYTHONPATH": python_path(), "FIPROF_ARTIFACTS": str(RUNS["all"].parent), **asked}
    done = ran(sys.executable, "-c", code, env=env)
    assert sorted(line.removeprefix("plain,") for line in done.stdout.splitlines()) == sorted(offered)


HEAVY = ("pandas", "pyarrow", "numpy", "sqlalchemy", "torch", "flashinfer", "rich", "jinja2")


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["collect", "--help"], ()),
        (["hotspots", "RUN"], ("pyarrow", "numpy", "rich")),
    ],
)
def test_heavy_packages_are_imported_where_they_are_used(arguments: list[str], allowed: tuple[str, ...]) -> None:
    words = [str(parsed("all").path) if word == "RUN" else word for word in arguments]
    code = (
        "import sys; sys.argv = ['fiprof', *sys.argv[1:]]\n"
        "from fiprof.cli.main import main\n"
        "try: main()\n"
        f"finally: sys.stderr.write('imported:' + ','.join(m for m in {HEAVY!r} if m in sys.modules))"
    )
    done = ran(sys.executable, "-c", code, *words, env={"PYTHONPATH": python_path(), "PATH": "/usr/bin:/bin"})
    imported = done.stderr.rpartition("imported:")[2].split(",")
    assert set(filter(None, imported)) <= set(allowed), done.stderr
