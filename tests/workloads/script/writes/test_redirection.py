"""What a script writes below the user's folder goes into the trial's own, and is read from there."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from loops import LOOP
from scripted import run, started

from perfsweep.workloads.errors import ConfigError

# Each checks itself; a name is that of the route.
ROUTES = {
    "open": """
        open('new.txt', 'w').write('x')
        assert open('new.txt').read() == 'x'
        """,
    "append": """
        open('there.txt', 'a').write('!')
        assert open('there.txt').read() == 'mine!'
        """,
    "in place": """
        open('there.txt', 'r+').write('M')
        assert open('there.txt').read() == 'Mine'
        """,
    "exclusive": """
        open('new.txt', 'x').write('x')
        try: open('there.txt', 'x')
        except FileExistsError: pass
        else: raise SystemExit('made again')
        """,
    "its name": """
        assert open('new.txt', 'w').name == 'new.txt' and open('n.bin', 'wb').name == 'n.bin'
        """,
    "no folder": """
        try: open('absent/new.txt', 'w')
        except FileNotFoundError as e: assert e.filename.endswith('absent/new.txt')
        else: raise SystemExit('made')
        """,
    "descriptor": """
        d = os.open('new.txt', os.O_CREAT | os.O_WRONLY)
        os.write(d, b'x')
        os.close(d)
        assert Path('new.txt').read_bytes() == b'x'
        """,
    "path": """
        Path('new.txt').write_text('x')
        assert Path('new.txt').exists() and Path('new.txt').is_file()
        """,
    "touch": """
        Path('new.txt').touch()
        os.utime('there.txt', (1, 1))
        assert os.stat('there.txt').st_mtime == 1
        """,
    "folder": """
        os.makedirs('out/deep')
        os.makedirs('out/deep', exist_ok=True)
        open('out/deep/x', 'w')
        assert os.listdir('out/deep') == ['x'] and 'out' in os.listdir('.') and 'there.txt' in os.listdir()
        """,
    "inside a folder": """
        open('full/new.txt', 'w')
        assert sorted(os.listdir('full')) == ['inner.txt', 'new.txt']
        """,
    "glob": """
        open('full/n.txt', 'w')
        assert sorted(glob.glob('full/*')) == ['full/inner.txt', 'full/n.txt']
        assert len([*Path('full').glob('*.txt')]) == 2 == len([*Path('full').iterdir()])
        """,
    "walk": """
        open('full/n.txt', 'w')
        assert [sorted(f) for p, d, f in os.walk('full')] == [['inner.txt', 'n.txt']]
        """,
    "remove": """
        os.remove('there.txt')
        assert not os.path.exists('there.txt')
        assert 'there.txt' not in os.listdir()
        try: open('there.txt')
        except FileNotFoundError: pass
        else: raise SystemExit('still there')
        """,
    "remove twice": """
        Path('there.txt').unlink()
        try: os.remove('there.txt')
        except FileNotFoundError: pass
        else: raise SystemExit('twice')
        """,
    "remove and write": """
        os.remove('there.txt')
        open('there.txt', 'w').write('x')
        assert open('there.txt').read() == 'x'
        os.remove('there.txt')
        assert not Path('there.txt').exists()
        """,
    "remove by descriptor": """
        os.unlink('there.txt', dir_fd=os.open('.', os.O_RDONLY))
        assert not Path('there.txt').exists()
        """,
    "tree": """
        shutil.rmtree('full')
        assert not Path('full').exists()
        os.mkdir('full')
        assert not os.listdir('full')
        """,
    "tree of both": """
        os.makedirs('full/a/b')
        open('full/a/b/c', 'w')
        shutil.rmtree('full')
        assert not os.path.isdir('full')
        """,
    "full folder": """
        try: os.rmdir('full')
        except OSError as e: assert e.errno == 39
        else: raise SystemExit('gone')
        """,
    "rename": """
        os.replace('there.txt', 'new.txt')
        assert open('new.txt').read() == 'mine'
        assert not os.path.exists('there.txt')
        """,
    "rename a folder": """
        os.rename('full', 'other')
        assert os.listdir('other') == ['inner.txt']
        assert not os.path.exists('full') and open('other/inner.txt').read() == 'mine'
        """,
    "written whole": """
        open('new.tmp', 'w').write('x')
        os.replace('new.tmp', 'there.txt')
        assert open('there.txt').read() == 'x' and not Path('new.tmp').exists()
        """,
    "from elsewhere": """
        import tempfile
        d = tempfile.mkdtemp()
        open(d + '/x', 'w').write('x')
        shutil.move(d + '/x', 'there.txt')
        assert open('there.txt').read() == 'x'
        assert not os.path.exists(d + '/x')
        """,
    "copy": """
        shutil.copy('there.txt', 'new.txt')
        assert Path('new.txt').read_text() == 'mine'
        shutil.copytree('full', 'again')
        assert Path('again/inner.txt').read_text() == 'mine'
        """,
    "copied tree": """
        open('full/n.txt', 'w').write('x')
        shutil.copytree('full', 'again')
        assert open('again/n.txt').read() == 'x' and len(os.listdir('again')) == 2
        """,
    "link": """
        os.symlink('there.txt', 'latest')
        assert open('latest').read() == 'mine' and os.path.islink('latest')
        open('latest', 'w').write('x')
        assert open('there.txt').read() == 'x'
        assert os.readlink('latest') == 'there.txt'
        """,
    "link to a new folder": """
        os.mkdir('step1')
        os.symlink(os.path.abspath('step1'), 'latest')
        open('latest/x', 'w').write('x')
        assert open('step1/x').read() == 'x'
        """,
    "hard link": """
        os.link('there.txt', 'new.txt')
        open('new.txt', 'a').write('!')
        assert open('there.txt').read() == 'mine'
        """,
    "through a link": """
        open('linked/new.txt', 'w').write('x')
        assert open('full/new.txt').read() == 'x'
        """,
    "elsewhere and back": """
        os.chdir('/')
        open(HERE + '/new.txt', 'w').write('x')
        assert open(HERE + '/new.txt').read() == 'x'
        """,
    "into its own folder": """
        os.mkdir('run')
        os.chdir('run')
        assert os.getcwd() == HERE + '/run'
        open('x', 'w').write('x')
        assert open('../there.txt').read() == 'mine'
        assert open('x').read() == 'x' and Path('x').resolve() == Path(HERE + '/run/x')
        """,
    "database": """
        d = sqlite3.connect('new.db')
        d.execute('create table a(b)')
        d.commit()
        d.close()
        assert sqlite3.connect('new.db').execute('select * from a').fetchall() == []
        """,
    "array": """
        np.save('new.npy', np.ones(3))
        assert np.load('new.npy').sum() == 3
        np.ones(2).tofile('raw')
        assert np.fromfile('raw').sum() == 2
        m = np.memmap('map', mode='w+', shape=(3,))
        m[:] = 1
        m.flush()
        assert os.path.getsize('map') == 3
        """,
    "torch.save": """
        torch.save({'a': 1}, 'new.pt')
        assert torch.load('new.pt') == {'a': 1}
        torch.save(torch.ones(2), Path('t.pt'))
        assert torch.load('t.pt', mmap=True).sum() == 2
        """,
    "torch.jit": """
        torch.jit.save(torch.jit.script(torch.nn.ReLU()), 'new.pt')
        torch.jit.load('new.pt')
        """,
    "torch.jit by name": "torch.jit.save(m=torch.jit.script(torch.nn.ReLU()), f='new.pt')",
    "safetensors": """
        import safetensors.torch as s
        s.save_file({'a': torch.ones(1)}, 'new.st')
        assert s.load_file('new.st')['a'] == 1
        """,
    "log": """
        import logging
        h = logging.FileHandler('new.log')
        h.stream.write('x')
        h.close()
        assert os.path.getsize('new.log') == 1
        """,
    "archive": """
        import tarfile
        t = tarfile.open('new.tar', 'w')
        t.add('there.txt')
        t.close()
        assert tarfile.open('new.tar').getnames() == ['there.txt']
        """,
    "temporary": """
        import tempfile
        f = tempfile.NamedTemporaryFile(dir='.', delete=False)
        f.write(b'x')
        f.close()
        os.replace(f.name, 'new.txt')
        assert open('new.txt').read() == 'x'
        """,
    "program": """
        import subprocess
        open('new.txt', 'w').write('x')
        assert subprocess.run(['cat', 'new.txt'], capture_output=True).stdout == b'x'
        subprocess.run(['echo', 'y'], stdout=open('out.txt', 'w'))
        assert open('out.txt').read() == 'y\\n'
        """,
}

IMPORTS = "import glob, os, shutil, sqlite3, torch, numpy as np\nfrom pathlib import Path\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "full").mkdir(parents=True)
    (folder / "there.txt").write_text("mine")
    (folder / "full/inner.txt").write_text("mine")
    (folder / "linked").symlink_to(folder / "full")
    return folder


def content(folder: Path) -> dict[str, str]:
    files = [file for file in folder.rglob("*") if file.is_file() and "runs" not in file.parts]
    return {str(file.relative_to(folder)): file.read_text() for file in files if file.name != "train.py"}


@pytest.mark.parametrize("how", ROUTES)
def test_it_finds_what_it_wrote_and_the_users_folder_stays_as_it_is(folder: Path, how: str) -> None:
    before = content(folder)
    with started(folder, f"{IMPORTS}HERE = {str(folder)!r}\n{dedent(ROUTES[how])}\n{LOOP}"):
        pass
    assert content(folder) == before


def test_a_checkpoint_at_an_epochs_end_is_known_by_path_and_line(folder: Path) -> None:
    text = LOOP + "    if number == 2: torch.save(model.state_dict(), 'new.pt')\n"
    with started(folder, text) as script:
        run(script, 3)
        (where,) = script._guard.written.items()
    assert where == (str(folder / "new.pt"), f"{folder / 'train.py'}:11")
    assert not (folder / "new.pt").exists()


THREAD = """
import os, threading
go = threading.Event()
os.makedirs("logs")
def log():
    go.wait()
    open("logs/events", "a").write("x")
    assert open("logs/events").read() == "x"
    noted.append("written")
noted = []
writer = threading.Thread(target=log, daemon=True)
writer.start()
"""
"""As TensorBoard's writer does it, whenever enough has come."""


def test_a_thread_of_the_scripts_finds_its_folder_while_the_trial_works(folder: Path) -> None:
    with started(folder, THREAD + LOOP) as script:
        run(script, 1)
        ours = sys.modules["__main__"]
        ours.go.set()
        ours.writer.join()
        assert ours.noted == ["written"]
    assert not (folder / "logs").exists()


def test_what_gets_around_is_refused_and_that_is_said(folder: Path) -> None:
    with (
        pytest.raises(
            ConfigError, match=r"train.py:1 wants to write .*new.txt in a way that cannot be redir"
        ),
        started(folder, f"import _io; _io.FileIO('new.txt', 'w')\n{LOOP}"),
    ):
        pass
    assert not (folder / "new.txt").exists()


def test_programs_that_the_script_starts_are_known_by_line(folder: Path) -> None:
    text = f"import subprocess, os\nsubprocess.run(['true', 'a'])\nos.system('true')\n{LOOP}"
    with started(folder, text) as script:
        assert [*script._guard.programs] == [
            f"{folder / 'train.py'}:2 starts true a",
            f"{folder / 'train.py'}:3 starts true",
        ]


def test_functions_of_os_are_its_own_again_afterwards(folder: Path) -> None:
    import builtins
    import os

    before = (builtins.open, os.open, os.stat, os.getcwd, set(os.supports_dir_fd))
    with started(folder, f"open('x', 'w')\n{LOOP}"):
        assert os.stat is not before[2]
        (folder / "ours.txt").write_text("x")  # the trial's own writes go where they are meant
    assert (folder / "ours.txt").read_text() == "x"
    assert (builtins.open, os.open, os.stat, os.getcwd, set(os.supports_dir_fd)) == before
