"""The cache: where it is, what goes when it grows, and that nothing needs it to work."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import t3sim.base.compiled.jit  # noqa: F401  before a test names another cache, in which it would make its folder
from t3sim import cli
from t3sim.base import cache
from t3sim.base.errors import BadInput
from t3sim.base.user_cache import cache_folder
from tests.support.damage import replaced

ROOT = Path(__file__).resolve().parents[2]
HOUR = 3600

#: Builds an entry and compiles a loop; prints where the entry is.
_PROGRAM = """
import numpy as np
from t3sim.base.cache import cached
from t3sim.base.compiled.jit import compiled

@compiled
def double(x):
    return 2 * x

assert double(np.int64(21)) == 42
folder = cached("key", lambda folder: (folder / "file").write_bytes(bytes(2_000_000)))
assert (folder / "file").stat().st_size == 2_000_000
print(folder, flush=True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("T3_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("T3_CACHE_GB", raising=False)
    return tmp_path / "cache"


def make(key: str, size: int, age_hours: float) -> Path:
    entry = cache.cached(key, lambda folder: (folder / "file").write_bytes(bytes(size)))
    used = time.time() - age_hours * HOUR
    os.utime(entry, (used, used))
    return entry


def names(folder: Path) -> list[str]:
    return [entry.path.name for entry in cache.entries(folder)]


@pytest.mark.long
def test_is_the_users_wherever_the_package_lies(monkeypatch, tmp_path):
    monkeypatch.delenv("T3_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "t3sim"
    monkeypatch.setenv("T3_CACHE", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
    program = "import os, t3sim.base.compiled.jit; print(os.environ['NUMBA_CACHE_DIR'])"
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, text=True, capture_output=True,
                          timeout=60)
    assert Path(told.stdout.strip()).parent == tmp_path / "named"


def test_least_recently_used_goes_first(folder, monkeypatch):
    for key, age in (("oldest", 5), ("older", 4), ("old", 3)):
        make(key, 400_000, age)
    cache.cached("oldest", lambda folder: pytest.fail("built again"))  # used: now the youngest
    monkeypatch.setenv("T3_CACHE_GB", "0.001")
    cache.cached("new", lambda folder: (folder / "file").write_bytes(bytes(400_000)))
    assert sorted(names(folder)) == ["new", "oldest"]


def test_what_is_in_use_or_being_built_stays(folder):
    make("young", 10, 0.5)
    make("old", 10, 2)
    program = ("import sys, time; from t3sim.base.cache import cached\n"
               "def make(folder):\n    print('building', flush=True); time.sleep(60)\n"
               "cached('partial', make)")
    builder = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert builder.stdout.readline() == "building\n"
    os.utime(folder / "partial.partial", (0, 0))
    assert [entry.path.name for entry in cache.evict(folder, 0)] == ["old"]
    assert sorted(names(folder)) == ["partial.partial", "young"]
    builder.kill()
    builder.wait()
    assert [entry.path.name for entry in cache.evict(folder, 0)] == ["partial.partial"]


def test_command_shows_and_empties(folder, capsys, json_of):
    make("library-1", 2_000_000, 2)
    make("library-2", 1_000_000, 0)
    make("netlist-1", 500_000, 3)
    assert cli.main(["cache"]) == 0
    told = capsys.readouterr().out
    assert str(folder) in told.replace("\n", "")
    assert "RTL, compiled" in told and "3.0" in told and "netlists of standard cells" in told
    told = json_of("cache")
    assert [entry["name"] for entry in told["entries"]] == ["netlist-1", "library-1", "library-2"]
    assert told["entries"][1]["bytes"] >= 2_000_000 and told["limit_bytes"] == 5_000_000_000
    assert cli.main(["cache", "--clear"]) == 0
    assert "removed 3 entries, 3.5 MB" in capsys.readouterr().out and names(folder) == []


@pytest.mark.parametrize("size", ["much", "-1", "nan", "inf", "1e400", "x" * 5000])
def test_a_limit_that_is_none(folder, monkeypatch, size, error_of):
    monkeypatch.setenv("T3_CACHE_GB", size)
    with pytest.raises(BadInput, match="T3_CACHE_GB"):
        cache.limit_bytes()
    error = error_of("cache")
    assert "T3_CACHE_GB" in error and len(error) < 200


def run_with_cache(folder: Path, mount: str = "") -> subprocess.CompletedProcess:
    (folder.parent / "program.py").write_text(_PROGRAM)
    command = [sys.executable, str(folder.parent / "program.py")]
    if mount:
        folder.mkdir()
        script = f'mount -t tmpfs -o {mount} none "$0" && exec "$@"'
        command = ["unshare", "-rm", "sh", "-c", script, str(folder), *command]
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=200,
                          env={**env, "T3_CACHE": str(folder)})


@pytest.mark.builds_loops
@pytest.mark.parametrize("mount", ["mode=700,size=16k", "mode=700,size=1500k", "mode=700,ro", ""],
                         ids=["full", "nearly full", "read-only", "no folder"])
def test_nothing_needs_the_cache(tmp_path, mount):
    if mount and subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False,
                                capture_output=True).returncode:
        pytest.skip("no file systems may be mounted here")
    folder = tmp_path / "cache"
    if not mount:
        folder.write_text("a file")
    done = run_with_cache(folder, mount)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (f"t3: the cache {folder} takes no files (read-only or full): what is built now is not "
                           "kept\n")
    assert not Path(done.stdout.strip()).parent.exists()  # the temporary one is gone


def test_a_failed_build_is_no_reason_for_another_cache(folder):
    def make(_):
        raise OSError(2, "No such file or directory", "input")
    with pytest.raises(OSError, match="input"):
        cache.cached("key", make)
    assert cache_folder() == folder


def refused(variable: str, folder: Path) -> str:
    """What an import says of a folder for compiled loops."""
    program = ("import sys\nfrom t3sim.base.errors import BadInput\n"
               "try: import t3sim.base.compiled.jit\nexcept BadInput as error: sys.exit(str(error))")
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=os.environ | {variable: str(folder)},
                          text=True, capture_output=True, timeout=60).stderr


@pytest.mark.long
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777, 0o722])
def test_a_folder_in_which_others_may_write_is_refused(tmp_path, monkeypatch, error_of, mode):
    """They could put there what t3 loads. The command line says so in a line, with exit code 2."""
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    monkeypatch.setenv("T3_CACHE", str(cache))
    told = error_of("cache")
    assert told.startswith("t3: error: T3_CACHE=")
    assert f"cache is refused because others may write there (mode {mode:o})" in told
    link = tmp_path / "link"
    link.symlink_to(cache)
    for variable in ("T3_CACHE", "NUMBA_CACHE_DIR"):
        assert "others may write there" in refused(variable, link)
    assert not [*cache.iterdir()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o755)
    os.chown(cache, 12345, -1)
    monkeypatch.setenv("T3_CACHE", str(cache))
    with pytest.raises(BadInput, match=r"T3_CACHE=.* is refused because it is another user's \(uid 12345\)"):
        cache_folder()


@pytest.mark.builds_loops
def test_a_start_with_a_umask_for_groups_does_not_stop_the_next(tmp_path):
    """As many systems have it: loops of the models are the first that a command keeps."""
    before = os.umask(0o002)
    try:
        assert [run_with_cache(tmp_path / "cache").returncode for _ in range(2)] == [0, 0]
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "cache", *tmp_path.glob("cache/loops-*"))} == {0}


def test_what_is_made_is_the_users_alone(folder):
    """Whatever the umask is: else the next start would refuse it."""
    before = os.umask(0o002)
    try:
        entry = make("key", 10, 0)
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (folder, entry)] == [0o700, 0o700]
    assert cache_folder() == folder


#: Answers a command; says on standard error which modules it took.
_ANSWERS = """
import sys
from t3sim import cli
code = cli.main(sys.argv[1:])
print(*(name for name in ("t3sim.machine.load", "t3sim.mechanisms.table", "t3sim.analytic.validation.fit", "numpy")
        if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""


class Copy:
    """A copy of the package with a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder, folder / "cache"
        for name, there in (("sim_models", "t3sim"), ("rtl", "t3sim/rtl")):
            shutil.copytree(ROOT / name, folder / there, ignore=shutil.ignore_patterns("__pycache__"))

    def edit(self, file: str, before: str, after: str) -> None:
        path = self.folder / "t3sim" / file
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, after))

    def run(self, program: str, *words: str, cache: Path | None = None) -> subprocess.CompletedProcess:
        environment = os.environ | {"PYTHONPATH": str(self.folder), "T3_CACHE": str(cache or self.cache),
                                    "PYTHONDONTWRITEBYTECODE": ""}
        ran = subprocess.run([sys.executable, "-c", program, *words], cwd=self.folder, env=environment, text=True,
                             capture_output=True, timeout=100)
        assert ran.returncode == 0, ran.stderr
        return ran

    def answer(self, *words: str, cache: Path | None = None) -> tuple[dict, list[str]]:
        """Return a command's JSON, and the modules that it took."""
        ran = self.run(_ANSWERS, *words, "--json", "-", cache=cache)
        return json.loads(ran.stdout), ran.stderr.split()

    def kept(self) -> list[Path]:
        return sorted(self.cache.glob("lists-*/*"))


@pytest.fixture
def copy(tmp_path) -> Copy:
    return Copy(tmp_path)


@pytest.mark.long
def test_lists_are_kept_until_the_package_is_edited(copy):
    first, modules = copy.answer("machines")
    assert "t3sim.machine.load" in modules
    second, modules = copy.answer("machines")
    assert second == first and not modules
    copy.edit("machine/machines/mi210.toml", "# Nodes of AMD", "# Edited nodes of AMD")
    edited, _ = copy.answer("machines")
    assert edited["the closed form"]["machines"]["mi210"].startswith("Edited nodes of AMD")
    listed, modules = copy.answer("techniques")
    assert "t3sim.mechanisms.table" in modules
    again, modules = copy.answer("techniques")
    assert again == listed and not modules
    copy.edit("mechanisms/sequential.py", "GEMM, then reduce-scatter, then", "GEMM, reduce-scatter, then")
    edited = copy.answer("techniques")[0]["techniques"]["sequential"]
    assert edited["title"] != listed["techniques"]["sequential"]["title"]
    assert len(copy.kept()) == 4


@pytest.mark.long
def test_errors_of_rows_are_kept_until_a_model_is_edited(copy):
    program = """
import json
from t3sim.analytic.validation.comparison import expected_error
print(json.dumps(expected_error("mi300x")))
"""
    first, second = (json.loads(copy.run(program).stdout) for _ in range(2))
    assert first == second and first["rows"]
    assert [path.name for path in copy.kept()] == ["rows-mi300x.json"]
    copy.edit("analytic/gemm.py", "flop_per_ns = 1e3 * peak", "flop_per_ns = 1.1e3 * peak")
    edited = json.loads(copy.run(program).stdout)
    assert edited["rows"] == first["rows"] and edited["mean_abs_error"] != first["mean_abs_error"]


@pytest.mark.long
def test_lists_are_made_anew_where_they_cannot_be_kept_or_are_damaged(copy, tmp_path):
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o777)
    (file := tmp_path / "file").write_text("")
    first, _ = copy.answer("machines")
    for other in (shared, file / "inside"):
        for _ in range(2):
            again, modules = copy.answer("machines", cache=other)
            assert again == first and "t3sim.machine.load" in modules
    assert not list(shared.iterdir())
    path, = copy.kept()
    whole = path.read_text()
    for damaged in (whole[:-9], replaced(whole, "mi210", "mi211"), "", "null"):
        path.write_text(damaged)
        assert copy.answer("machines")[0] == first and path.read_text() == whole


@pytest.mark.long
def test_a_process_that_may_run_older_sources_keeps_nothing(copy):
    program = """
import os, time
from pathlib import Path
import t3sim.base
time.sleep(0.05)
os.utime(Path(t3sim.__file__).parent / "cli.py")
from t3sim.base.cache import kept
assert kept("answer", lambda: (1, {2: 0.1})) == [1, {"2": 0.1}]
"""
    copy.run(program)
    assert not copy.kept()
    copy.run(program.replace("os.utime", "str"))
    assert [path.name for path in copy.kept()] == ["answer.json"]


@pytest.mark.long
def test_nothing_is_kept_where_another_distribution_adds_parts(copy):
    metadata = copy.folder / "my_parts-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my_parts\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[t3sim.techniques]\nmine = my_parts:MINE\n")
    copy.answer("machines")
    assert not copy.kept()
    (metadata / "entry_points.txt").write_text("[others]\nmine = my_parts:MINE\n")
    copy.answer("machines")
    assert copy.kept()
