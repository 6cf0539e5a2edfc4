"""What a script writes below the user's folder goes into the trial's own, and is read from there.

A script is run; what it does goes through `redirection` and `overlay` of perfsweep.workloads.script.writes.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from loops import LOOP
from scripted import content, run, started

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
    "descriptor": """
        d = os.open('new.txt', os.O_CREAT | os.O_WRONLY)
        os.write(d, b'x')
        os.close(d)
        heir = lambda file, flags: os.set_inheritable(d := os.open(file, flags), True) or d
        opened = open('there.txt', opener=heir)
        assert opened.name == 'there.txt' and not os.get_inheritable(opened.fileno())
        assert Path('new.txt').read_bytes() == b'x'
        """,
    "folder": """
        os.makedirs('out/deep')
        os.makedirs('out/deep', exist_ok=True)
        open('out/deep/x', 'w')
        assert os.listdir('out/deep') == ['x'] and 'out' in os.listdir('.') and 'there.txt' in os.listdir()
        with os.scandir(b'out') as entries:
            seen = [(e.name, e.path, e.is_dir(), e.is_file()) for e in entries]
        assert seen == [(b'deep', b'out/deep', True, False)]
        os.symlink('x', 'out/deep/last')
        last, one = sorted(os.scandir('out/deep'), key=lambda e: e.name)
        assert (one.name, os.fspath(one), one.is_dir(), one.is_symlink()) == ('x', 'out/deep/x', False, False)
        assert (last.is_symlink(), last.is_file(), last.is_file(follow_symlinks=False)) == (True, True, False)
        assert one.stat().st_size == 0 and one.inode() == os.stat('out/deep/x').st_ino != last.inode()
        for wrong in (lambda: os.rmdir('out'), lambda: os.rename('full', 'out')):
            try: wrong()
            except OSError as error: assert error.errno == errno.ENOTEMPTY
            else: raise SystemExit('gone')
        """,
    "remove": """
        os.remove('there.txt')
        assert not os.path.exists('there.txt')
        assert 'there.txt' not in os.listdir()
        try: open('there.txt')
        except FileNotFoundError: pass
        else: raise SystemExit('still there')
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
    "renamed folder": """
        os.rename('full', 'moved')
        assert os.readlink('moved/latest') == 'inner.txt' and open('moved/latest').read() == 'mine'
        """,
    "rename": """
        os.replace('there.txt', 'new.txt')
        assert open('new.txt').read() == 'mine'
        assert not os.path.exists('there.txt')
        """,
    "written whole": """
        open('new.tmp', 'w').write('x')
        os.replace('new.tmp', 'there.txt')
        assert open('there.txt').read() == 'x' and not Path('new.tmp').exists()
        """,
    "copy": """
        shutil.copy('there.txt', 'new.txt')
        assert Path('new.txt').read_text() == 'mine'
        shutil.copytree('full', 'again')
        assert Path('again/inner.txt').read_text() == 'mine'
        """,
    "link": """
        os.symlink('there.txt', 'latest')
        assert open('latest').read() == 'mine' and os.path.islink('latest')
        open('latest', 'w').write('x')
        assert open('there.txt').read() == 'x'
        assert os.readlink('latest') == 'there.txt'
        """,
    "hard link": """
        os.link('there.txt', 'new.txt')
        open('new.txt', 'a').write('!')
        assert open('there.txt').read() == 'mine'
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
    "safetensors": """
        import safetensors.torch as s
        s.save_file({'a': torch.ones(1)}, 'new.st')
        assert s.load_file('new.st')['a'] == 1
        """,
    "program": """
        import subprocess
        open('new.txt', 'w').write('x')
        assert subprocess.run(['cat', 'new.txt'], capture_output=True).stdout == b'x'
        subprocess.run(['echo', 'y'], stdout=open('out.txt', 'w'))
        assert open('out.txt').read() == 'y\\n'
        """,
}

IMPORTS = "import errno, glob, os, shutil, sqlite3, torch, numpy as np\nfrom pathlib import Path\n"


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
