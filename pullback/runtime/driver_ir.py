"""LLVM IR of the native driver: the loop that walks a program's launches, and the thread pool below it.

How a parallel wave runs. The thread that runs the program (the owner) writes the job's fields, sets ``@pending`` to
the number of chunks, then stores that number in ``@ticket``. Everybody, the owner too, claims chunks by decrementing
``@ticket``: a positive old value is a claim. A claim *pins* the job, for its fields change only after ``@pending``,
which each thread lowers by the chunks that it finished, has reached zero. So fields are read after the claim, a worker
that wakes late finds no ticket and touches nothing, and the owner never waits for a worker that claimed nothing.

Which chunk a claim gets. The chunks are cut into as many ranges as there are threads; a thread takes from the range
that is its home, wave after wave the same part of the data, which is still in its cache, and then from the others.
Every claim is for some chunk, so one of the ranges has it.

How workers sleep. A worker that found no ticket for a while counts itself in ``@sleepers`` under the mutex, looks once
more at ``@ticket`` and waits on the condition. The owner stores ``@ticket`` and then reads ``@sleepers``. Both pairs
are sequentially consistent, so one of the two sees the other; and the mutex makes the wake-up wait for the sleep.
While it looks it offers its processor to whoever waits for it: the system may wake it on the owner's, and a wave of
100 us after a millisecond of Python then took 620 us, the time that the worker spun.

Small waves. To wake a worker takes longer than a wave of a few microseconds: only workers that are awake take part.
Where many such waves follow each other closely, one of them wakes the sleepers after all, who then stay awake.
"""

from __future__ import annotations

import platform
import sys

# Words (i64) of a table's header, of a wave's record and of a launch's record; driver.py writes them.
HEADER_WORDS = 8  # waves, any parallel wave, scratch bytes a thread, enter function, leave function
WAVE_WORDS = 4  # address of the first launch, launches, chunks, how it runs
ALONE, TOGETHER, IF_AWAKE = 0, 1, 2  # how: by one thread, by all, by all that are awake
LAUNCH_WORDS = 6  # function, address of params, total, grain, first chunk, end chunk

FUNCTIONS = (
    "pullback_run", "pullback_worker", "pullback_pool_reset", "pullback_pool_set", "pullback_pool_reserve",
    "pullback_pool_release",
)  # fmt: skip

_SPIN_NANOSECONDS = 500_000
_CLOSE_NANOSECONDS = 50_000  # from one small wave to the next
_STREAK = 32  # as many closely together wake the sleepers
_RANGES = 64  # more threads than that share ranges

_TEXT = """
@owner    = internal global i64 0, align 128
@ticket   = internal global i64 0, align 128
@pending  = internal global i64 0, align 128
@job_slots    = internal global ptr null, align 128
@job_launches = internal global ptr null
@job_chunks   = internal global i64 0
@job_scratch  = internal global i64 0
@job_ranges   = internal global i64 1
@ranges   = internal global [$RANGES x [16 x i64]] zeroinitializer, align 128 ; the next chunk of each
@sleepers = internal global i64 0, align 128
@wanted   = internal global i64 0
@streak   = internal global i64 0 ; small waves that nobody was awake for, one closely behind the other
@last_small = internal global i64 0
@live     = internal global i64 0
@mutex     = internal global [16 x i64] zeroinitializer, align 128
@condition = internal global [16 x i64] zeroinitializer, align 128

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i64 @llvm.smin.i64(i64, i64)
$PAUSE_DECLARATION

define internal i64 @now(ptr %timespec) {
  %r = call i32 @clock_gettime(i32 $MONOTONIC, ptr %timespec)
  %s = load i64, ptr %timespec
  %np = getelementptr i64, ptr %timespec, i64 1
  %n = load i64, ptr %np
  %sn = mul i64 %s, 1000000000
  %t = add i64 %sn, %n
  ret i64 %t
}

; One chunk: chunk number %index of the wave, which belongs to %launch.
define internal void @run_chunk(ptr %launch, i64 %index, ptr %slots, ptr %scratch) {
  %params.p = getelementptr i64, ptr %launch, i64 1
  %total.p = getelementptr i64, ptr %launch, i64 2
  %grain.p = getelementptr i64, ptr %launch, i64 3
  %first.p = getelementptr i64, ptr %launch, i64 4
  %fn = load ptr, ptr %launch
  %params = load ptr, ptr %params.p
  %total = load i64, ptr %total.p
  %grain = load i64, ptr %grain.p
  %first = load i64, ptr %first.p
  %chunk = sub i64 %index, %first
  %lo = mul i64 %chunk, %grain
  %end = add i64 %lo, %grain
  %hi = call i64 @llvm.smin.i64(i64 %end, i64 %total)
  call void %fn(ptr %slots, ptr %params, i64 %lo, i64 %hi, ptr %scratch)
  ret void
}

; Grow a worker's own scratch. Nothing can be done without the memory that a claimed chunk needs: try until it is there.
define internal void @grow(ptr %state, i64 %need) noinline {
entry:
  %old = load ptr, ptr %state
  call void @free(ptr %old)
  br label %try
try:
  %r = call i32 @posix_memalign(ptr %state, i64 64, i64 %need)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %done, label %wait
wait:
  %y = call i32 @sched_yield()
  br label %try
done:
  %size.p = getelementptr i64, ptr %state, i64 1
  store i64 %need, ptr %size.p
  ret void
}

; The first chunk of range %r.
define internal i64 @range_start(i64 %r, i64 %chunks, i64 %ranges) {
  %product = mul i64 %r, %chunks
  %start = udiv i64 %product, %ranges
  ret i64 %start
}

; Claim and run chunks until none is left. %state: {scratch address, its bytes} of this thread.
define internal void @participate(ptr %state, i64 %home) {
entry:
  %t0 = atomicrmw sub ptr @ticket, i64 1 acq_rel
  %some = icmp sgt i64 %t0, 0
  br i1 %some, label %pinned, label %none
pinned:
  %slots = load ptr, ptr @job_slots
  %launches = load ptr, ptr @job_launches
  %chunks = load i64, ptr @job_chunks
  %need = load i64, ptr @job_scratch
  %ranges = load i64, ptr @job_ranges
  %range0 = urem i64 %home, %ranges
  %size.p = getelementptr i64, ptr %state, i64 1
  %size = load i64, ptr %size.p
  %short = icmp slt i64 %size, %need
  br i1 %short, label %growing, label %ready
growing:
  call void @grow(ptr %state, i64 %need)
  br label %ready
ready:
  %scratch = load ptr, ptr %state
  br label %claimed
claimed:
  %done = phi i64 [ 0, %ready ], [ %done1, %here ]
  %from = phi ptr [ %launches, %ready ], [ %launch, %here ]
  %range1 = phi i64 [ %range0, %ready ], [ %range, %here ]
  br label %probe
probe:
  %range = phi i64 [ %range1, %claimed ], [ %following.range, %exhausted ]
  %next.range = add i64 %range, 1
  %limit = call i64 @range_start(i64 %next.range, i64 %chunks, i64 %ranges)
  %counter = getelementptr [16 x i64], ptr @ranges, i64 %range
  %index = atomicrmw add ptr %counter, i64 1 monotonic
  %found = icmp slt i64 %index, %limit
  br i1 %found, label %locate, label %exhausted
exhausted:
  %last.range = icmp eq i64 %next.range, %ranges
  %following.range = select i1 %last.range, i64 0, i64 %next.range
  br label %probe
locate:
  %first.p = getelementptr i64, ptr %from, i64 4
  %first = load i64, ptr %first.p
  %behind = icmp slt i64 %index, %first
  %begin = select i1 %behind, ptr %launches, ptr %from
  br label %find
find:
  %launch = phi ptr [ %begin, %locate ], [ %following, %skip ]
  %end.p = getelementptr i64, ptr %launch, i64 5
  %end = load i64, ptr %end.p
  %inside = icmp slt i64 %index, %end
  br i1 %inside, label %here, label %skip
skip:
  %following = getelementptr i64, ptr %launch, i64 $LAUNCH_WORDS
  br label %find
here:
  call void @run_chunk(ptr %launch, i64 %index, ptr %slots, ptr %scratch)
  %done1 = add i64 %done, 1
  %t1 = atomicrmw sub ptr @ticket, i64 1 monotonic
  %more = icmp sgt i64 %t1, 0
  br i1 %more, label %claimed, label %finish
finish:
  %p = atomicrmw sub ptr @pending, i64 %done1 release
  br label %none
none:
  ret void
}

; Describe a wave and open it for claims. The ranges: one a thread, none empty.
define internal void @publish(ptr %launches, i64 %chunks) {
entry:
  store ptr %launches, ptr @job_launches
  store i64 %chunks, ptr @job_chunks
  %wanted = load atomic i64, ptr @wanted monotonic, align 8
  %threads = add i64 %wanted, 1
  %few = call i64 @llvm.smin.i64(i64 %threads, i64 $RANGES)
  %ranges = call i64 @llvm.smin.i64(i64 %few, i64 %chunks)
  store i64 %ranges, ptr @job_ranges
  br label %range
range:
  %r = phi i64 [ 0, %entry ], [ %r1, %range ]
  %start = call i64 @range_start(i64 %r, i64 %chunks, i64 %ranges)
  %counter = getelementptr [16 x i64], ptr @ranges, i64 %r
  store atomic i64 %start, ptr %counter monotonic, align 8
  %r1 = add i64 %r, 1
  %more = icmp slt i64 %r1, %ranges
  br i1 %more, label %range, label %open
open:
  store atomic i64 %chunks, ptr @pending monotonic, align 8
  store atomic i64 %chunks, ptr @ticket seq_cst, align 8
  ret void
}

; A worker's life: spin for work, sleep when none comes, return when there are more workers than wanted.
; %home: its number, from 1.
define void @pullback_worker(i64 %home) {
entry:
  %state = alloca [2 x i64], align 16
  %timespec = alloca [2 x i64], align 16
  store [2 x i64] zeroinitializer, ptr %state
  br label %idle
idle:
  %start = call i64 @now(ptr %timespec)
  br label %spin
spin:
  %n = phi i64 [ 0, %idle ], [ %n1, %pausing ], [ %n1, %timing ]
  %t = load atomic i64, ptr @ticket acquire, align 8
  %some = icmp sgt i64 %t, 0
  br i1 %some, label %work, label %pausing
pausing:
  $PAUSE
  %n1 = add i64 %n, 1
  %round = and i64 %n1, 31
  %timed = icmp eq i64 %round, 0
  br i1 %timed, label %timing, label %spin
timing:
  %y = call i32 @sched_yield()
  %time = call i64 @now(ptr %timespec)
  %spent = sub i64 %time, %start
  %enough = icmp sgt i64 %spent, $SPIN
  br i1 %enough, label %sleep, label %spin
work:
  call void @participate(ptr %state, i64 %home)
  %live0 = load atomic i64, ptr @live monotonic, align 8
  %wanted0 = load atomic i64, ptr @wanted monotonic, align 8
  %surplus0 = icmp sgt i64 %live0, %wanted0
  br i1 %surplus0, label %sleep, label %idle
sleep:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %live1 = load atomic i64, ptr @live monotonic, align 8
  %wanted1 = load atomic i64, ptr @wanted monotonic, align 8
  %surplus1 = icmp sgt i64 %live1, %wanted1
  br i1 %surplus1, label %leave, label %doze
doze:
  %s0 = atomicrmw add ptr @sleepers, i64 1 seq_cst
  %last = load atomic i64, ptr @ticket seq_cst, align 8
  %late = icmp sgt i64 %last, 0
  br i1 %late, label %awake, label %wait
wait:
  %w = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %awake
awake:
  %s1 = atomicrmw sub ptr @sleepers, i64 1 seq_cst
  %live2 = load atomic i64, ptr @live monotonic, align 8
  %wanted2 = load atomic i64, ptr @wanted monotonic, align 8
  %surplus2 = icmp sgt i64 %live2, %wanted2
  br i1 %surplus2, label %leave, label %resume
resume:
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %idle
leave:
  %fewer = atomicrmw sub ptr @live, i64 1 monotonic
  %v = call i32 @pthread_mutex_unlock(ptr @mutex)
  %scratch = load ptr, ptr %state
  call void @free(ptr %scratch)
  ret void
}

; Wake as many sleepers as there are chunks beside the owner's own.
define internal void @wake(i64 %chunks) noinline {
entry:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %sleepers = load atomic i64, ptr @sleepers monotonic, align 8
  %u = call i32 @pthread_mutex_unlock(ptr @mutex) ; who sleeps now is past the mutex: signal without it
  %others = sub i64 %chunks, 1
  %all = icmp sge i64 %others, %sleepers
  br i1 %all, label %everybody, label %one
everybody:
  %b = call i32 @pthread_cond_broadcast(ptr @condition)
  br label %done
one:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %s = call i32 @pthread_cond_signal(ptr @condition)
  %k1 = add i64 %k, 1
  %again = icmp slt i64 %k1, %others
  br i1 %again, label %one, label %done
done:
  ret void
}

; The owner's end of a wave: spin, then give the processor to whoever still works.
define internal void @await() noinline {
entry:
  br label %look
look:
  %n = phi i64 [ 0, %entry ], [ %n1, %spin ], [ %n, %yield ]
  %p = load atomic i64, ptr @pending acquire, align 8
  %finished = icmp eq i64 %p, 0
  br i1 %finished, label %done, label %waiting
waiting:
  %patient = icmp slt i64 %n, 1000
  br i1 %patient, label %spin, label %yield
spin:
  $PAUSE
  %n1 = add i64 %n, 1
  br label %look
yield:
  %y = call i32 @sched_yield()
  br label %look
done:
  ret void
}

; Whether a small wave is for several threads: some worker is awake, or it is the last of a streak.
define internal i1 @calls_for_help() noinline {
entry:
  %timespec = alloca [2 x i64], align 16
  %live = load atomic i64, ptr @live monotonic, align 8
  %sleepers = load atomic i64, ptr @sleepers monotonic, align 8
  %awake = icmp sgt i64 %live, %sleepers
  br i1 %awake, label %yes, label %look
look:
  %time = call i64 @now(ptr %timespec)
  %before = load i64, ptr @last_small
  store i64 %time, ptr @last_small
  %since = sub i64 %time, %before
  %close = icmp slt i64 %since, $CLOSE
  %streak = load i64, ptr @streak
  %longer = add i64 %streak, 1
  %now = select i1 %close, i64 %longer, i64 0
  store i64 %now, ptr @streak
  %enough = icmp sge i64 %now, $STREAK
  br i1 %enough, label %yes, label %no
yes:
  store i64 0, ptr @streak
  ret i1 true
no:
  ret i1 false
}

; Run a program. 0: as wanted; 1: fewer workers live than wanted, start them before the next run.
define i64 @pullback_run(ptr %table, ptr %slots) {
entry:
  %state = alloca [2 x i64], align 16
  %waves = load i64, ptr %table
  %parallel.p = getelementptr i64, ptr %table, i64 1
  %need.p = getelementptr i64, ptr %table, i64 2
  %enter.p = getelementptr i64, ptr %table, i64 3
  %leave.p = getelementptr i64, ptr %table, i64 4
  %wave0 = getelementptr i64, ptr %table, i64 $HEADER_WORDS
  %wave.end.n = mul i64 %waves, $WAVE_WORDS
  %wave.end = getelementptr i64, ptr %wave0, i64 %wave.end.n
  %scratch.p = getelementptr i64, ptr %slots, i64 1
  %scratch = load ptr, ptr %scratch.p
  %enter = load ptr, ptr %enter.p
  %guarded = icmp ne ptr %enter, null
  br i1 %guarded, label %entering, label %choose
entering:
  call void %enter()
  br label %choose
choose:
  %parallel = load i64, ptr %parallel.p
  %wanted = load atomic i64, ptr @wanted monotonic, align 8
  %has.parallel = icmp ne i64 %parallel, 0
  %has.wanted = icmp ne i64 %wanted, 0
  %threads = and i1 %has.parallel, %has.wanted
  br i1 %threads, label %own, label %start
own:
  %live = load atomic i64, ptr @live monotonic, align 8
  %fewer = icmp slt i64 %live, %wanted
  %status.own = zext i1 %fewer to i64
  %pair = cmpxchg ptr @owner, i64 0, i64 1 acquire monotonic
  %owned = extractvalue { i64, i1 } %pair, 1
  br i1 %owned, label %prepare, label %start
prepare:
  %need = load i64, ptr %need.p
  store i64 %need, ptr @job_scratch
  store ptr %slots, ptr @job_slots
  store ptr %scratch, ptr %state
  %size.p = getelementptr i64, ptr %state, i64 1
  store i64 9223372036854775807, ptr %size.p
  br label %start
start:
  %pool = phi i64 [ 0, %choose ], [ 0, %own ], [ 1, %prepare ]
  %status = phi i64 [ 0, %choose ], [ 0, %own ], [ %status.own, %prepare ]
  br label %next
next:
  %wave = phi ptr [ %wave0, %start ], [ %wave.following, %wave.done ], [ %wave.following, %checked ]
  %over = icmp eq ptr %wave, %wave.end
  br i1 %over, label %finish, label %do
do:
  %wave.following = getelementptr i64, ptr %wave, i64 $WAVE_WORDS
  %count.p = getelementptr i64, ptr %wave, i64 1
  %chunks.p = getelementptr i64, ptr %wave, i64 2
  %together.p = getelementptr i64, ptr %wave, i64 3
  %launches = load ptr, ptr %wave
  %chunks = load i64, ptr %chunks.p
  %together = load i64, ptr %together.p
  %alone = icmp eq i64 %together, 0
  %no.pool = icmp eq i64 %pool, 0
  %not.used = or i1 %alone, %no.pool
  br i1 %not.used, label %by.itself, label %ask
ask:
  %small = icmp eq i64 %together, $IF_AWAKE
  br i1 %small, label %small.wave, label %publish
small.wave:
  %calls = call i1 @calls_for_help()
  br i1 %calls, label %publish, label %by.itself

publish:
  call void @publish(ptr %launches, i64 %chunks)
  %sleepers = load atomic i64, ptr @sleepers seq_cst, align 8
  %live.now = load atomic i64, ptr @live monotonic, align 8
  %all.asleep = icmp sge i64 %sleepers, %live.now
  %hurry = icmp ne i64 %together, $IF_AWAKE
  %may.wake = or i1 %hurry, %all.asleep
  %some.asleep = icmp ne i64 %sleepers, 0
  %asleep = and i1 %some.asleep, %may.wake
  br i1 %asleep, label %waking, label %join
waking:
  call void @wake(i64 %chunks)
  br label %join
join:
  call void @participate(ptr %state, i64 0)
  call void @await()
  br label %wave.done

by.itself:
  br label %serial
serial:
  %launch = phi ptr [ %launches, %by.itself ], [ %launch.following, %launch.done ]
  %chunk0 = phi i64 [ 0, %by.itself ], [ %end, %launch.done ]
  %end.p = getelementptr i64, ptr %launch, i64 5
  %end = load i64, ptr %end.p
  br label %chunk
chunk:
  %index = phi i64 [ %chunk0, %serial ], [ %index1, %chunk ]
  call void @run_chunk(ptr %launch, i64 %index, ptr %slots, ptr %scratch)
  %index1 = add i64 %index, 1
  %more = icmp slt i64 %index1, %end
  br i1 %more, label %chunk, label %launch.done
launch.done:
  %launch.following = getelementptr i64, ptr %launch, i64 $LAUNCH_WORDS
  %launches.left = icmp slt i64 %end, %chunks
  br i1 %launches.left, label %serial, label %wave.done
wave.done:
  ; A failed check ends the program here.
  %error = load ptr, ptr %slots
  %has.error = icmp ne ptr %error, null
  br i1 %has.error, label %checked, label %next
checked:
  %flag = load i64, ptr %error
  %fine = icmp eq i64 %flag, 0
  br i1 %fine, label %next, label %finish

finish:
  %ours = icmp ne i64 %pool, 0
  br i1 %ours, label %release, label %close
release:
  store atomic i64 0, ptr @owner release, align 8
  br label %close
close:
  %leave = load ptr, ptr %leave.p
  %leaving = icmp ne ptr %leave, null
  br i1 %leaving, label %exit, label %end.run
exit:
  call void %leave()
  br label %end.run
end.run:
  ret i64 %status
}

; A pool without workers; also what a forked child, where no worker lives, begins with.
define void @pullback_pool_reset() {
  store i64 0, ptr @owner
  store i64 0, ptr @ticket
  store i64 0, ptr @pending
  store i64 0, ptr @sleepers
  store i64 0, ptr @live
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}

; Want %n workers: those too many leave, those that lack are for pullback_pool_reserve's caller to start.
define void @pullback_pool_set(i64 %n) {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  store atomic i64 %n, ptr @wanted monotonic, align 8
  %b = call i32 @pthread_cond_broadcast(ptr @condition)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

; How many workers the caller must start now; they count as live from here on.
define i64 @pullback_pool_reserve() {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %wanted = load atomic i64, ptr @wanted monotonic, align 8
  %live = load atomic i64, ptr @live monotonic, align 8
  %lack = sub i64 %wanted, %live
  %some = icmp sgt i64 %lack, 0
  %n = select i1 %some, i64 %lack, i64 0
  %now = add i64 %live, %n
  store atomic i64 %now, ptr @live monotonic, align 8
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret i64 %n
}

; %n reserved workers could not be started.
define void @pullback_pool_release(i64 %n) {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %old = atomicrmw sub ptr @live, i64 %n monotonic
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
"""


def driver_ir() -> str:
    """The module's text for this operating system and architecture."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64", "i386", "i686"):
        declaration, pause = "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"
    elif machine in ("arm64", "aarch64"):
        declaration, pause = "declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"
    else:
        declaration, pause = "", ""
    values = {
        "$PAUSE_DECLARATION": declaration,
        "$PAUSE": pause,
        "$MONOTONIC": "6" if sys.platform == "darwin" else "1",
        "$SPIN": str(_SPIN_NANOSECONDS),
        "$CLOSE": str(_CLOSE_NANOSECONDS),
        "$STREAK": str(_STREAK),
        "$IF_AWAKE": str(IF_AWAKE),
        "$HEADER_WORDS": str(HEADER_WORDS),
        "$WAVE_WORDS": str(WAVE_WORDS),
        "$LAUNCH_WORDS": str(LAUNCH_WORDS),
        "$RANGES": str(_RANGES),
    }
    text = _TEXT
    for name, value in values.items():
        text = text.replace(name, value)
    return text
