"""Machine code on disk: found again, never in part, never from a folder that others can write."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from stepcompiler import Cpu, Signature, compile_step, dynamic_input
from stepcompiler.targets import cpu, object_cache
from stepcompiler.targets.object_cache import cached_object


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "objects"
    monkeypatch.setenv("STEPCOMPILER_CACHE", str(path))
    return path


def refuse():
    raise AssertionError("compiled again")


def test_code_is_found_again(folder):
    assert cached_object("a", lambda: b"code") == cached_object("a", refuse) == b"code"
    assert cached_object("b", lambda: b"other") == b"other"
    assert [p.suffix for p in folder.iterdir()] == [".o", ".o"]


@pytest.mark.parametrize("damage", [b"", b"x" * 10, b"\0" * 40])
def test_a_damaged_file_is_compiled_again(folder, damage):
    cached_object("a", lambda: b"code")
    (path,) = folder.iterdir()
    path.write_bytes(damage)
    assert cached_object("a", lambda: b"code") == b"code" == cached_object("a", refuse)


def test_off_and_folders_that_cannot_be_used(folder, monkeypatch, tmp_path):
    folder.mkdir()
    folder.chmod(0o777)
    assert cached_object("a", lambda: b"1") == b"1" and cached_object("a", lambda: b"2") == b"2"
    monkeypatch.setenv("STEPCOMPILER_CACHE", "off")
    assert cached_object("a", lambda: b"3") == b"3"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STEPCOMPILER_CACHE", str(tmp_path / "file"))
    assert cached_object("a", lambda: b"4") == b"4"
    assert not list(folder.iterdir())


def test_many_writers_and_a_full_folder(folder, monkeypatch):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda k: cached_object(str(k % 4), lambda: bytes([k % 4]) * 1000), range(64)))
    assert found == [bytes([k % 4]) * 1000 for k in range(64)]
    monkeypatch.setattr(object_cache, "_MOST", 2500)
    cached_object("new", lambda: b"n" * 1000)
    assert len(list(folder.iterdir())) == 2


def test_a_kernel_from_disk_gives_the_same_numbers(folder, monkeypatch):
    def run():
        step = lambda shared, member, state, n, path: (np.float64(1.5) * state + shared[0], state, state == state)
        kernel = compile_step(step, Signature([dynamic_input(0.1)], state=np.zeros(())), Cpu(4))
        buffers = kernel.allocate(3, slots=10)
        kernel.set_inputs(buffers, shared=[0.1], state=np.arange(3.0))
        kernel.run(buffers, 10)
        return kernel.state(buffers)

    first = run()
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(cpu, "optimized", lambda *_: refuse())
    np.testing.assert_array_equal(run(), first)
