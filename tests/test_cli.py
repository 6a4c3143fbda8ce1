"""The command line as a whole: help, examples, exit statuses, what it imports; and what a newcomer types first, in the words of
the README and docs/: nothing of it trips."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import click
import pytest

from fiprof.cli.main import cli
from tests.conftest import REPOSITORY, Fiprof, fake_programs, python_path, ran, run_fiprof
from tests.nsys_exports import FIVE_KERNELS
from tests.recorded_runs import ON_H100, RUNS, copied, invoke, parsed, profiled, replayed
from tests.reports_fixture import RAW
from tests.test_compare_measure import CASES
from tests.test_workloads import USERS_OWN

COMMANDS = cli.list_commands(click.Context(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_in_each_commands_help_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = cli.get_command(click.Context(cli), name)
    example = str(command and command.epilog)
    assert example.startswith(f"Example: fiprof {name}")
    if name in ("capture", "env", "gate"):
        return
    if name == "story":  # is told of programs
        copied(profiled("llama"), tmp_path / "artifacts")
    elif name in ("pack", "parse"):
        copied("prefill-decode-rope", tmp_path / "artifacts")
    elif name != "import":
        copied(replayed("decode" if name == "compare" else "all"), tmp_path / "artifacts")
    (tmp_path / "my_kernels.py").write_text(USERS_OWN)
    shutil.copy(FIVE_KERNELS, tmp_path / "trace.sqlite")
    shutil.copy(RAW, tmp_path / "raw.csv")
    monkeypatch.chdir(tmp_path)
    status, printed = invoke(*shlex.split(example.removeprefix("Example: fiprof ")))
    # The recorded run is packed already.
    assert status == 0 and (printed or name in ("pack", "import"))
    assert name != "kernels" or "--width" in printed


@pytest.mark.fault("the ncu that is named does not exist", "`env` names it and how to install it, exit status 1")
def test_env_names_the_remedies(faked: Fiprof) -> None:
    done = faked("env", FIPROF_NCU="/no/such/ncu", status=1)
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
        ("runs --artifacts ARCHIVE --where bach=1", "no run has a parameter bach"),
        ("runs --artifacts ARCHIVE --where batch", "is not a condition"),
        ("runs --artifacts ARCHIVE --where dtype>fp16", "compares no numbers"),
        ("runs --since yesterday", "is not a time"),
        ("runs --metric speed", "no quantity speed"),
        ("runs --catalog mysql://x", "cannot be opened"),
        ("top latest --over .", "Error: give either RUN or --over"),
        ("top --over . --by range", "Error: --over takes --kernel, --by host, run, rank or gpu"),
        ("top --over nowhere", "fiprof: nowhere holds no run"),
        ("verify --artifacts nowhere", "fiprof: nowhere holds no run"),
        ("jit --read nowhere", "Error: Invalid value for '--read': File 'nowhere' does not exist.\n"),
        ("export latest", "Error: Missing option '--to'. Choose from:\n  parquet,\n  csv,"),
        ("import programs/* --on dask:nowhere", "fiprof: --on dask:nowhere cannot be reached: missing port number"),
        ("import nothing/**/*.sqlite", "fiprof: no file fits nothing/**/*.sqlite"),
        ("import nope://x/*", "fiprof: nope://x/* cannot be reached: "),
        ("import programs/* --on moon", "fiprof: --on moon names nothing that imports"),
    ],
)
def test_wrong_use(faked: Fiprof, arguments: str, words: str) -> None:
    done = faked(*arguments.replace("ARCHIVE", str(parsed("decode").path.parent)).split())
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False) and words in done.stderr


@pytest.mark.fault("the reader of a pipe goes away", "a quiet end")
def test_a_reader_that_goes_away_is_no_error() -> None:
    run = shlex.quote(str(parsed("all").path))
    shell = f"{shlex.quote(sys.executable)} -m fiprof stalls {run} --format json | head -n 1"
    done = ran("bash", "-o", "pipefail", "-c", shell, env={"PYTHONPATH": python_path(), "PATH": "/usr/bin:/bin"})
    assert "BrokenPipe" not in done.stderr and done.stdout == "{\n"


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


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("collect", "--help"), set()),
        *(((each, "RUN"), {"pyarrow", "numpy", "rich"}) for each in ("hotspots", "verdict")),
    ],
)
def test_heavy_packages_are_imported_where_they_are_used(words: tuple[str, ...], allowed: set[str]) -> None:
    heavy = ("pandas", "pyarrow", "numpy", "torch", "flashinfer", "rich", "jinja2")
    code = (
        "import sys; sys.argv = ['fiprof', *sys.argv[1:]]\nfrom fiprof.cli.main import main\n"
        f"try: main()\nfinally: sys.stderr.write('imported:' + ','.join(m for m in {heavy} if m in sys.modules))"
    )
    words = tuple(word.replace("RUN", str(parsed("all").path)) for word in words)
    done = ran(sys.executable, "-c", code, *words, env={"PYTHONPATH": python_path(), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0 and {*done.stderr.rpartition("imported:")[2].split(",")} <= {"", *allowed}, done.stderr


(OWN_KERNEL,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/own-kernel.md").read_text(), re.DOTALL)
KERNEL = OWN_KERNEL.replace("import torch\n", "")
"""Without torch, which takes seconds and is not needed before it is launched."""
COST = KERNEL.index("    def cost")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, light: Path) -> Path:
    """A recorded run, and after it a measured comparison, a failed collect, and a run whose manifest is damaged."""
    folder = tmp_path_factory.mktemp("trips")
    shutil.copytree(RUNS["all"], folder / "artifacts" / RUNS["all"].name)
    env = fake_programs(folder, light)
    assert run_fiprof("compare", "--measure", "here", "env:X=1", *CASES, cwd=folder, env=env).returncode == 0
    assert run_fiprof("collect", "--kernel", "rope", cwd=folder, env={**env, "FAKE_NCU": "no-report"}).returncode == 1
    (folder / "artifacts/20261124-000000-damaged").mkdir()
    (folder / "artifacts/20261124-000000-damaged/run.json").write_text("{")
    return folder / "artifacts"


@pytest.mark.fault("a gate, a failed or a damaged run after the last complete one", "`latest` is what a command reads")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("verdict latest", "note: latest is 20261121-120959-all; 20261124-000000-damaged is no complete run"),
        ("top latest", "20261121-120959-all: NVIDIA H200"),
        ("report latest --out out", "out/report.md"),
        ("tag latest mine", "-compare-decode-rmsnorm: mine"),
        ("compare latest", "decode"),
        ("compare latest:batch=32 latest:batch=32", "A: 20261121-120959-all, batch=32"),
    ],
)
def test_latest_is_the_newest_run_that_the_command_reads(words: str, name: str, archive: Path, fiprof: Fiprof) -> None:
    done = fiprof(*words.split(), "--artifacts", str(archive))
    assert (done.returncode, name in done.stdout + done.stderr) == (0, True), done.stderr


LACKING = """import lacking.nn as nn
from lacking import Tensor

@nn.no_grad()
def f(x: Tensor | None) -> None: ...

class Layer(nn.Module): ...
"""


@pytest.mark.fault("a workload's file imports what is lacking here, or has no cost", "it is collected all the same")
def test_kernels_of_ones_own(faked: Fiprof, tmp_path: Path) -> None:
    texts = {"whole": KERNEL, "costless": KERNEL[:COST], "lacks": LACKING + KERNEL}
    texts["imports"] = "import beside\n" + KERNEL
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text.replace('"softmax"', f'"{name}"'))
    (tmp_path / "beside.py").write_text("import json.lacking")
    words = [word for name in texts for word in ("--workload", f"{name}.py")]
    done = faked("collect", *words, "--rows", "1", "--tool", "ncu", status=0)
    assert "complete; next: fiprof verdict artifacts/" in done.stderr
    cases = json.loads((tmp_path / done.stdout.strip() / "run.json").read_text())["cases"]
    assert [(case["id"], case["workload"], case["flops"]) for case in cases] == [
        (f"{name}[rows=1]", f"{name}.py:{name}", 0 if name == "costless" else 4 * 4096) for name in texts
    ]
    assert faked("roofline", "latest").returncode == faked("report", "latest").returncode == 0


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("import lacking\n" + KERNEL, "lacking cannot be imported by "),
        ("x = 1 / 0\n" + KERNEL, "my_kernels.py cannot be imported: ZeroDivisionError"),
        (KERNEL + KERNEL[KERNEL.index("class Softmax") :].replace("Softmax", "B").replace('"softmax"', '"b"'),
         "my_kernels.py defines 2 workloads\n  it defines softmax, b; my_kernels.py:NAME is one"),
        ("x = 1\n", "my_kernels.py defines 0 workloads"),
    ],
)  # fmt: skip
def test_what_a_file_lacks_is_said_by_whoever_runs_it(text: str, first: str, tmp_path: Path) -> None:
    (tmp_path / "my_kernels.py").write_text(text)
    (tmp_path / "torch.py").touch()
    words = (sys.executable, "-m", "fiprof.workloads", "run", "--case", "my_kernels.py")
    done = ran(*words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"})
    assert done.returncode and done.stderr.startswith(f"fiprof: error: {first}"), done.stderr


def test_compare_suggests_what_runs_as_printed(fiprof: Fiprof) -> None:
    """Not for runs on two kinds of GPU."""
    decode, troubles = RUNS["decode"], (RUNS["troubles"], ON_H100["troubles"])
    sides = [f"{decode}:tensor_cores={value}" for value in ("false", "true")]
    printed = [fiprof("compare", *map(str, pair)).stdout for pair in (sides, troubles)]
    (line,), none = (re.findall(r"fiprof (compare --measure .*)", text) for text in printed)
    assert none == []
    fiprof(*shlex.split(line), "--dry-run", status=0)


def test_make_collect_installs_fiprof_alone_and_ends_with_the_verdict(tmp_path: Path) -> None:
    words = ["make", "--no-print-directory", "--dry-run", "collect", f"VENV={tmp_path}/venv", "HAS_GPU=0"]
    printed = ran(*words, cwd=REPOSITORY).stdout
    assert "--editable '.'" in printed and "[dev]" not in printed
    assert printed.splitlines()[-1] == f"{tmp_path}/venv/bin/fiprof verdict latest"


def test_no_text_installs_a_package_called_fiprof() -> None:
    """It is in no index: whoever registers the name would be installed."""
    files = [*REPOSITORY.glob("fiprof/**/*.*"), *REPOSITORY.glob("docs/**/*.*"), REPOSITORY / "README.md"]
    kinds = (".py", ".md", ".j2", ".toml", ".csv", ".ipynb", ".yml")
    texts = {path: path.read_text() for path in files if path.suffix in kinds}
    assert [path for path, text in texts.items() if re.search(r"pip\"? install (-\S+ )*['\"]?fiprof", text)] == []
