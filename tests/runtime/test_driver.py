"""The native driver and its thread pool: every chunk once, waves in order, and whatever can happen to the threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pullback.errors import ArgumentError, PullbackWarning
from pullback.graph import state
from pullback.runtime import driver, driver_ir, llvm_engine
from pullback.runtime.driver import Launch

# add: out[i] += value of the params; copy: out[i] = in[i] (waves); spread: fills scratch, then sums it up into out[i].
KERNELS = """
define void @add(ptr %slots, ptr %params, i64 %lo, i64 %hi, ptr %scratch) {
entry:
  %slot = load i64, ptr %params
  %value.p = getelementptr i64, ptr %params, i64 1
  %value = load i64, ptr %value.p
  %p = getelementptr ptr, ptr %slots, i64 %slot
  %out = load ptr, ptr %p
  br label %loop
loop:
  %i = phi i64 [ %lo, %entry ], [ %i1, %loop ]
  %q = getelementptr i64, ptr %out, i64 %i
  %old = load i64, ptr %q
  %new = add i64 %old, %value
  store i64 %new, ptr %q
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %hi
  br i1 %c, label %loop, label %done
done:
  ret void
}

; out[i] = 2 in[n - 1 - i]: a wave that began early would read what is not there yet
define void @mirror(ptr %slots, ptr %params, i64 %lo, i64 %hi, ptr %scratch) {
entry:
  %in.slot = load i64, ptr %params
  %out.p = getelementptr i64, ptr %params, i64 1
  %out.slot = load i64, ptr %out.p
  %n.p = getelementptr i64, ptr %params, i64 2
  %n = load i64, ptr %n.p
  %p = getelementptr ptr, ptr %slots, i64 %in.slot
  %in = load ptr, ptr %p
  %r = getelementptr ptr, ptr %slots, i64 %out.slot
  %out = load ptr, ptr %r
  br label %loop
loop:
  %i = phi i64 [ %lo, %entry ], [ %i1, %loop ]
  %last = sub i64 %n, 1
  %j = sub i64 %last, %i
  %s = getelementptr i64, ptr %in, i64 %j
  %x = load i64, ptr %s
  %y = shl i64 %x, 1
  %q = getelementptr i64, ptr %out, i64 %i
  store i64 %y, ptr %q
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %hi
  br i1 %c, label %loop, label %done
done:
  ret void
}

; out[chunk's first task] = lo * 2^32 + hi
define void @bounds(ptr %slots, ptr %params, i64 %lo, i64 %hi, ptr %scratch) {
  %slot = load i64, ptr %params
  %p = getelementptr ptr, ptr %slots, i64 %slot
  %out = load ptr, ptr %p
  %h = shl i64 %lo, 32
  %v = or i64 %h, %hi
  %q = getelementptr i64, ptr %out, i64 %lo
  store i64 %v, ptr %q
  ret void
}

; fill the scratch (n words) with lo, then out[lo] = their sum
define void @scratched(ptr %slots, ptr %params, i64 %lo, i64 %hi, ptr %scratch) {
entry:
  %slot = load i64, ptr %params
  %n.p = getelementptr i64, ptr %params, i64 1
  %n = load i64, ptr %n.p
  %p = getelementptr ptr, ptr %slots, i64 %slot
  %out = load ptr, ptr %p
  br label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i1, %fill ]
  %f = getelementptr i64, ptr %scratch, i64 %i
  store i64 %lo, ptr %f
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %n
  br i1 %c, label %fill, label %sum
sum:
  %j = phi i64 [ 0, %fill ], [ %j1, %sum ]
  %t = phi i64 [ 0, %fill ], [ %t1, %sum ]
  %g = getelementptr i64, ptr %scratch, i64 %j
  %x = load volatile i64, ptr %g
  %t1 = add i64 %t, %x
  %j1 = add i64 %j, 1
  %d = icmp slt i64 %j1, %n
  br i1 %d, label %sum, label %done
done:
  %q = getelementptr i64, ptr %out, i64 %lo
  store i64 %t1, ptr %q
  ret void
}

@depth = internal global i64 0
define void @enter() {
  %o = atomicrmw add ptr @depth, i64 1 seq_cst
  ret void
}
define void @leave() {
  %o = atomicrmw sub ptr @depth, i64 1 seq_cst
  ret void
}
; out[lo] = how many programs are between enter and leave
define void @inside(ptr %slots, ptr %params, i64 %lo, i64 %hi, ptr %scratch) {
  %slot = load i64, ptr %params
  %p = getelementptr ptr, ptr %slots, i64 %slot
  %out = load ptr, ptr %p
  %d = load atomic i64, ptr @depth seq_cst, align 8
  %q = getelementptr i64, ptr %out, i64 %lo
  store i64 %d, ptr %q
  ret void
}
"""
NAMES = ("add", "mirror", "bounds", "scratched", "enter", "leave", "inside")
THREADS = (1, 2, 3, 5)


@pytest.fixture(scope="module")
def kernels() -> dict[str, int]:
    return llvm_engine.compile_ir(KERNELS, NAMES)


@pytest.fixture(autouse=True)
def restore_threads():
    before = driver.get_num_threads()
    yield
    driver.set_num_threads(before)


class Slots:
    """A program call's slots: arrays in slots 2, 3, ..."""

    def __init__(self, *arrays: np.ndarray, scratch: int = 0) -> None:
        self.arrays = arrays
        self.scratch = np.zeros(scratch // 8 + 8, np.int64)
        scratch_address = self.scratch.ctypes.data + 63 & -64
        self.words = np.array([0, scratch_address, *(array.ctypes.data for array in arrays)], np.int64)
        self.address = self.words.ctypes.data


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize(("total", "grain"), [(1, 1), (1, 10), (10, 1), (1000, 7), (1000, 999), (1000, 1000)])
def test_chunks_are_whole_and_run_once(kernels: dict[str, int], threads: int, total: int, grain: int) -> None:
    driver.set_num_threads(threads)
    bounds, sums = np.full(total, -1), np.zeros(total, np.int64)
    slots = Slots(bounds, sums)
    wave = [Launch(kernels["bounds"], [2], total, grain), Launch(kernels["add"], [3, 5], total, grain)]
    table = driver.build_table([wave])
    for round_number in range(20):
        driver.run(table, slots.address)
        assert (sums == 5 * (round_number + 1)).all()
    want = np.full(total, -1)
    for lo in range(0, total, grain):
        want[lo] = (lo << 32) + min(lo + grain, total)
    assert (bounds == want).all()


@pytest.mark.parametrize("threads", THREADS)
def test_waves_run_in_order(kernels: dict[str, int], threads: int) -> None:
    driver.set_num_threads(threads)
    n = 1000
    x, y = np.arange(n), np.zeros(n, np.int64)
    slots = Slots(x, y)
    there = Launch(kernels["mirror"], [2, 3, n], n, 13)
    back = Launch(kernels["mirror"], [3, 2, n], n, 17)
    table = driver.build_table([[there], [back]] * 10)
    for _ in range(50):
        x[:] = np.arange(n)
        driver.run(table, slots.address)
        assert (x == np.arange(n) << 20).all()


def test_many_launches_of_many_sizes(kernels: dict[str, int]) -> None:
    rng = np.random.default_rng(0)
    driver.set_num_threads(3)
    for _ in range(20):
        sizes = rng.integers(0, 300, 12).tolist()
        arrays = [np.zeros(size, np.int64) for size in sizes]
        slots = Slots(*arrays)
        launches = [
            Launch(kernels["add"], [2 + number, number + 1], size, int(rng.integers(1, 40)))
            for number, size in enumerate(sizes)
        ]
        cut = int(rng.integers(0, 12))
        table = driver.build_table([launches[:cut], [], launches[cut:]])
        for _ in range(10):
            driver.run(table, slots.address)
        for number, array in enumerate(arrays):
            assert (array == 10 * (number + 1)).all()


@pytest.mark.parametrize("threads", THREADS)
def test_each_thread_has_its_own_scratch(kernels: dict[str, int], threads: int) -> None:
    driver.set_num_threads(threads)
    for words in (10, 3000, 100):
        out = np.zeros(200, np.int64)
        launch = Launch(kernels["scratched"], [2, words], 200, 1, scratch_bytes=8 * words)
        table = driver.build_table([[launch], [Launch(kernels["add"], [2, 0], 200, 50)], [launch]])
        assert table.scratch_bytes == 8 * words + 63 & -64
        slots = Slots(out, scratch=table.scratch_bytes)
        for _ in range(20):
            driver.run(table, slots.address)
            assert (out == np.arange(200) * words).all()


def test_empty_programs(kernels: dict[str, int]) -> None:
    out = np.zeros(1, np.int64)
    slots = Slots(out)
    for waves in ([], [[]], [[Launch(kernels["add"], [2, 1], 0, 1)]], [[], [Launch(kernels["add"], [2, 1], 0, 1)]]):
        driver.run(driver.build_table(waves), slots.address)
    assert out[0] == 0


def test_which_waves_are_parallel(kernels: dict[str, int]) -> None:
    def wave(*sizes: tuple[int, int]) -> bool:
        return driver.is_parallel([Launch(kernels["add"], [2, 1], total, grain) for total, grain in sizes])

    assert not wave((10, 10))
    assert wave((11, 10))
    assert not wave((10, 1000), (10, 1000))
    assert wave((9, 9), (9, 9)), "two full chunks are worth two threads"


def test_serial_waves_stay_on_the_calling_thread(kernels: dict[str, int]) -> None:
    driver.set_num_threads(2)
    out = np.zeros(100, np.int64)
    # The scratch of the calling thread is the only one that ends up in this memory.
    launch = Launch(kernels["scratched"], [2, 4], 100, 1, scratch_bytes=32)
    table = driver.build_table([[launch]], serial={0})
    slots = Slots(out, scratch=table.scratch_bytes)
    for _ in range(50):
        slots.scratch[:] = -1
        driver.run(table, slots.address)
        assert 99 in slots.scratch


def test_params_are_signed_words(kernels: dict[str, int]) -> None:
    out = np.zeros(1, np.int64)
    driver.run(driver.build_table([[Launch(kernels["add"], [2, -(1 << 63)], 1, 1)]]), Slots(out).address)
    assert out[0] == -(1 << 63)


def test_bad_tables(kernels: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="grain"):
        driver.build_table([[Launch(kernels["add"], [2, 1], 5, 0)]])
    launch = Launch(kernels["add"], [2, 1], 5, 1, guard=(kernels["enter"], kernels["leave"]))
    with pytest.raises(ValueError, match="guards"):
        driver.build_table([[launch, launch._replace(guard=(1, 2))]])


def test_guards_surround_the_program(kernels: dict[str, int]) -> None:
    out = np.zeros(64, np.int64)
    slots = Slots(out)
    guard = (kernels["enter"], kernels["leave"])
    inside = Launch(kernels["inside"], [2], 64, 1)
    guarded = driver.build_table([[inside], [inside._replace(guard=guard)]])
    for _ in range(3):
        driver.run(guarded, slots.address)
        assert (out == 1).all()
    driver.run(driver.build_table([[inside]]), slots.address)
    assert (out == 0).all()


def test_python_threads_at_once(kernels: dict[str, int]) -> None:
    driver.set_num_threads(2)
    errors: list[str] = []

    def work(seed: int) -> None:
        n = 500
        x, y = np.zeros(n, np.int64), np.zeros(n, np.int64)
        words = 200
        slots = Slots(x, y, scratch=8 * words)
        table = driver.build_table([
            [Launch(kernels["scratched"], [2, words], n, 1, scratch_bytes=8 * words)],
            [Launch(kernels["mirror"], [2, 3, n], n, 11)],
        ])
        want = (np.arange(n) * words * 2)[::-1]
        for _ in range(200):
            x[:], y[:] = 0, 0
            driver.run(table, slots.address)
            if not (y == want).all():
                errors.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def workers() -> int:
    return sum(thread.name == "pullback-worker" for thread in threading.enumerate())


def wait_for_workers(count: int) -> None:
    deadline = time.monotonic() + 20
    while workers() != count and time.monotonic() < deadline:
        time.sleep(0.002)
    assert workers() == count


def test_changing_the_number_of_threads(kernels: dict[str, int]) -> None:
    out = np.zeros(1000, np.int64)
    slots = Slots(out)
    table = driver.build_table([[Launch(kernels["add"], [2, 1], 1000, 9)]])
    runs = 0
    for threads in (2, 5, 1, 3, 2, 1, 4):
        driver.set_num_threads(threads)
        assert driver.get_num_threads() == threads
        for _ in range(20):
            driver.run(table, slots.address)
            runs += 1
        wait_for_workers(threads - 1)
        assert (out == runs).all()


def test_changing_the_number_of_threads_while_programs_run(kernels: dict[str, int]) -> None:
    stop = threading.Event()

    def change() -> None:
        rng = np.random.default_rng(0)
        while not stop.is_set():
            driver.set_num_threads(int(rng.integers(1, 6)))
            time.sleep(0.0005)

    out = np.zeros(400, np.int64)
    words = 50
    table = driver.build_table([[Launch(kernels["scratched"], [2, words], 400, 1, scratch_bytes=8 * words)]])
    slots = Slots(out, scratch=8 * words)
    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(1000):
            out[:] = 0
            driver.run(table, slots.address)
            assert (out == np.arange(400) * words).all()
    finally:
        stop.set()
        thread.join()


def test_bad_numbers_of_threads() -> None:
    for bad in (0, -1, driver.MAX_THREADS + 1, 10**30):
        with pytest.raises(ArgumentError, match="at least 1 and at most"):
            driver.set_num_threads(bad)
    with pytest.raises(TypeError):
        driver.set_num_threads(1.5)  # type: ignore[arg-type]


def test_sleeping_workers_use_no_processor(kernels: dict[str, int]) -> None:
    driver.set_num_threads(3)
    out = np.zeros(1000, np.int64)
    driver.run(driver.build_table([[Launch(kernels["add"], [2, 1], 1000, 9)]]), Slots(out).address)
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.01  # a worker that spun on would take half a second


def test_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_NUM_THREADS", "7")
    assert driver.default_num_threads() == 7
    monkeypatch.setenv("PULLBACK_NUM_THREADS", "")
    assert driver.default_num_threads() >= 1
    for bad in ("0", "-2", "abc", "1.5", "1e9", "1000000000", "9" * 5000):
        monkeypatch.setenv("PULLBACK_NUM_THREADS", bad)
        monkeypatch.setattr(state, "_warned", set())
        with pytest.warns(PullbackWarning, match="PULLBACK_NUM_THREADS must be an integer from 1 to") as found:
            assert driver.default_num_threads() == driver._usable_processors()
            assert driver.default_num_threads() == driver._usable_processors()
        assert [warning.filename for warning in found] == [__file__]


def test_affinity_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULLBACK_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 9}, raising=False)
    monkeypatch.setattr(driver, "cgroup_processors", lambda: None)
    assert driver.default_num_threads() == 3
    monkeypatch.setattr(driver, "cgroup_processors", lambda: 1.5)
    assert driver.default_num_threads() == 2
    monkeypatch.setattr(driver, "cgroup_processors", lambda: 0.1)
    assert driver.default_num_threads() == 1


def test_cgroup_quotas(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    root = tmp_path / "sys"
    (root / "a" / "b").mkdir(parents=True)
    membership.write_text("0::/a/b\n")
    assert driver.cgroup_processors(str(membership), str(root)) is None
    (root / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert driver.cgroup_processors(str(membership), str(root)) is None
    (root / "a" / "cpu.max").write_text("250000 100000\n")
    assert driver.cgroup_processors(str(membership), str(root)) == 2.5
    (root / "cpu.max").write_text("100000 100000\n")
    assert driver.cgroup_processors(str(membership), str(root)) == 1.0
    old = root / "cpu" / "x"
    old.mkdir(parents=True)
    membership.write_text("3:cpu,cpuacct:/x\n2:memory:/x\n")
    (old / "cpu.cfs_quota_us").write_text("-1\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    assert driver.cgroup_processors(str(membership), str(root)) is None
    (old / "cpu.cfs_quota_us").write_text("300000\n")
    assert driver.cgroup_processors(str(membership), str(root)) == 3.0
    assert driver.cgroup_processors(str(tmp_path / "absent"), str(root)) is None


PRELUDE = f"""
import os, sys, threading, time, warnings
import numpy as np
warnings.simplefilter("ignore", DeprecationWarning)
from pullback.runtime import driver, driver_ir, llvm_engine
from pullback.runtime.driver import Launch
add = llvm_engine.compile_ir({KERNELS!r}, ["add"])["add"]
out = np.zeros(1000, np.int64)
slots = np.array([0, 0, out.ctypes.data])
driver.set_num_threads(3)
table = driver.build_table([[Launch(add, [2, 1], 1000, 9)]])
def run(times=50):
    before = out.copy()
    for _ in range(times):
        driver.run(table, slots.ctypes.data)
    assert (out == before + times).all()
def workers():
    return sum(thread.name == "pullback-worker" for thread in threading.enumerate())
run()
assert workers() == 2
"""


def subprocess_run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.strip()


@pytest.mark.parametrize(
    "end",
    [
        "",  # workers spin or have just gone to sleep
        "time.sleep(0.05)",  # workers sleep
        "sys.exit(0)",
        "threading.Thread(target=run, args=(10**6,), daemon=True).start(); time.sleep(0.05); os._exit(0)",
        "driver.set_num_threads(1)",  # workers are about to return to Python
        "import atexit; atexit.register(run)",
    ],
)
def test_exit_is_clean(end: str) -> None:
    subprocess_run(end)


def test_exit_while_another_thread_runs_programs() -> None:
    code = """
def forever():
    while True:
        driver.run(table, slots.ctypes.data)
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.02)
"""
    subprocess_run(code)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork() -> None:
    code = """
for sleep in (0, 0.02):
    time.sleep(sleep)
    child = os.fork()
    if child == 0:
        assert workers() == 0
        run()
        assert workers() == 2
        grandchild = os.fork()
        if grandchild == 0:
            run()
            os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 5
        run()
        os._exit(4)
    run()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
print("done")
"""
    assert subprocess_run(code) == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_while_other_threads_run_and_compile() -> None:
    code = """
text = "define i64 @f(i64 %x) {\\n  ret i64 %x\\n}\\n"
stop = []
def work():
    other = np.zeros(1000, np.int64)
    words = np.array([0, 0, other.ctypes.data])
    while not stop:
        driver.run(table, words.ctypes.data)
def compile():
    while not stop:
        llvm_engine.compile_ir(text, ["f"], quick=True)
threads = [threading.Thread(target=work), threading.Thread(target=compile)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        run()
        llvm_engine.compile_ir(text, ["f"])
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
stop.append(1)
for thread in threads:
    thread.join()
print("done")
"""
    assert subprocess_run(code) == "done"


def test_no_threads_to_be_had() -> None:
    code = """
driver.set_num_threads(1)
run()
while workers():
    time.sleep(0.002)
start = threading.Thread.start
def refuse(thread):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
driver.set_num_threads(4)
run()
assert workers() == 0
threading.Thread.start = start
driver.set_num_threads(3)
run()
print(workers())
"""
    assert subprocess_run(code) == "2"


# -- the whole library -------------------------------------------------------------------------------------------------

WHOLE = """
import os, sys, threading, time
{before}
import numpy as np
import pullback as pb
f = pb.jit(lambda x: (pb.sum(pb.tanh(x) ** 2), pb.cumsum(x)))
x = np.linspace(-1, 1, 1 << 20, dtype=np.float32)
def right():
    total, running = f(x)
    return abs(float(total) - float((np.tanh(x.astype("f8")) ** 2).sum())) < 1 and running.shape == x.shape
def workers():
    return sum(thread.name == "pullback-worker" for thread in threading.enumerate())
"""


def whole(code: str, before: str = "", **environment: str) -> tuple[str, str]:
    """Output and errors of a process that computes over many chunks."""
    result = subprocess.run(
        [sys.executable, "-c", WHOLE.format(before=before) + code], capture_output=True, text=True, timeout=120,
        check=False, env=os.environ | environment,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.strip(), result.stderr


@pytest.mark.parametrize("text", ["0", "abc", "-1", "1000000000"])
def test_a_number_of_threads_that_is_none_is_told_once_and_the_answer_is_right(text: str) -> None:
    out, errors = whole("print(right(), right(), workers() == pb.get_num_threads() - 1)", PULLBACK_NUM_THREADS=text)
    assert out == "True True True"
    assert errors.count("PullbackWarning: PULLBACK_NUM_THREADS must be an integer") == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_affinity_before_the_import() -> None:
    before = "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); os.environ.pop('PULLBACK_NUM_THREADS', None)"
    assert whole("print(right(), pb.get_num_threads(), workers())", before) == ("True 1 0", "")


def test_an_idle_process_uses_no_processor() -> None:
    """After work on several Python threads and on the pool's, all at once."""
    code = """
threads = [threading.Thread(target=lambda: [f(x) for _ in range(20)]) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
time.sleep(0.2)
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before < 0.01, workers(), right())
"""
    assert whole(code, PULLBACK_NUM_THREADS="4") == ("True 3 True", "")


def test_small_kernels_do_not_wake_the_pool() -> None:
    """What other threads do is in the process's time, and not in the calling thread's."""
    code = """
small = np.linspace(-1, 1, 100, dtype=np.float32)
right()
float(f(small)[0])
time.sleep(0.1)
own, all_of_us = time.thread_time(), time.process_time()
for _ in range(3000):
    f(small)
own, all_of_us = time.thread_time() - own, time.process_time() - all_of_us
print(workers(), all_of_us - own < 0.02 * own + 0.001)
"""
    assert whole(code, PULLBACK_NUM_THREADS="3") == ("2 True", "")


def test_small_programs_start_no_pool() -> None:
    code = "print([float(f(np.ones(n, np.float32))[1][-1]) for n in (1, 10, 1000)], workers())"
    assert whole(code, PULLBACK_NUM_THREADS="3") == ("[1.0, 10.0, 1000.0] 0", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes_and_compiles() -> None:
    """While other threads of the parent build, compile and run. (Not while one imports: in CPython a child waits
    forever for a module that another thread was loading, whoever's it is. So a first call comes before the threads.)"""
    code = """
right()
stop = []
def work(seed):
    n = 1000 + 100 * seed
    while not stop:
        n += 1
        g = pb.jit(lambda x: pb.sum(x * n) + pb.max(x))
        float(g(x[:n])); float(pb.sum(pb.sin(pb.asarray(x[:n])))); right()
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
codes = []
for number in range(4):
    child = os.fork()
    if child == 0:
        ok = right() and workers() == 2 and float(pb.jit(lambda x: pb.sum(x * x) - number)(np.ones(9))) == 9 - number
        os._exit(0 if ok else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.append(1)
for thread in threads:
    thread.join()
print(right(), codes == [0] * 4)
"""
    before = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)"
    assert whole(code, before, PULLBACK_NUM_THREADS="3") == ("True True", "")


def test_small_waves_are_shared_with_who_is_awake(kernels: dict[str, int]) -> None:
    out = np.zeros(1000, np.int64)
    light = Launch(kernels["add"], [2, 1], 1000, 100, weight=0.1)
    assert not driver.is_parallel([light])
    lighter = light._replace(weight=0.01)
    heavy = light._replace(weight=1.0)
    modes = [driver.build_table([[launch]])._words[driver_ir.HEADER_WORDS + 3] for launch in (heavy, light, lighter)]
    assert modes == [driver_ir.TOGETHER, driver_ir.IF_AWAKE, driver_ir.ALONE]
    table = driver.build_table([[light]])
    slots = Slots(out)
    for _ in range(500):  # from the first streak on a worker takes part
        driver.run(table, slots.address)
    assert np.all(out == 500)
