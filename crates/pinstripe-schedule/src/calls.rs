//! Replaces functions of the C library: those that synchronize threads, sleep, read the clock and
//! return random bytes. The functions of this module take their place in the complete test program:
//! calls by threads of a story go to the schedule, all others to the C library.
//!
//! So the tested code need not know the schedule, and no way to wait can be overlooked: a thread
//! that waited in the kernel without a turn would stop the story forever.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_long, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{clockid_t, pthread_attr_t, pthread_t, timespec};

use crate::schedule::{Counts, Schedule, Turn, Wait};

/// The second at which the clock of every story begins; it is later than the modification time of
/// any file.
const FIRST_SECOND: i64 = 4_000_000_000;
/// A sleep of at most this length counts as a call of a member.
const CALL_SLEEP_NANOS: u64 = 1_000_000;

static SCHEDULE: Mutex<Option<Schedule>> = Mutex::new(None);
/// The threads of the story with their handles, the newest last.
static HANDLES: Mutex<Vec<(pthread_t, usize)>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
struct Own {
    number: usize,
    turn: &'static Turn,
}

thread_local! {
    /// The thread's place in the schedule, if it is a thread of a story.
    static OWN: Cell<Option<Own>> = const { Cell::new(None) };
}

/// Runs `story` on a thread of its own; the seed determines the schedule of all threads that it
/// starts.
pub fn scheduled<T: Send>(seed: u64, story: impl FnOnce() -> T + Send) -> (T, Counts) {
    scheduled_from(0, seed, story)
}

/// Does the same as `scheduled`, but the clock begins this number of seconds later.
pub fn scheduled_from<T: Send>(
    seconds: u64,
    seed: u64,
    story: impl FnOnce() -> T + Send,
) -> (T, Counts) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = lock(&ONE_AT_A_TIME);
    std::thread::scope(|scope| {
        let play = scope.spawn(|| {
            stay_on_one_processor();
            let mut schedule = Schedule::new(seed, seconds);
            let (number, turn) = schedule.begin(None);
            *lock(&SCHEDULE) = Some(schedule);
            OWN.set(Some(Own { number, turn }));
            let done = story();
            // Threads that no thread of the story joins come to their ends.
            while !with(|it| it.is_alone(number)) {
                go_on(with(|it| it.linger(number)));
            }
            OWN.set(None);
            lock(&HANDLES).clear();
            // Threads that wait for ever, as those of a mount, stay behind.
            let schedule = lock(&SCHEDULE).take().expect("it was put there");
            (done, schedule.counts)
        });
        play.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Called at each call of a member; another thread may be scheduled first.
pub fn seam() {
    if let Some(own) = OWN.get() {
        go_on(with(|it| it.call(own.number)));
    }
}

/// Assigns this thread, and the threads that it starts from now on, to the process with this
/// number.
pub fn take_part(process: usize) {
    if let Some(own) = OWN.get() {
        with(|it| it.take_part(own.number, Some(process)));
    }
}

/// Records that this thread's process has opened its store.
pub fn has_opened(process: usize) {
    with(|it| it.has_opened(process));
}

/// Records that a process has ended; returns the number of calls that it made since it opened its
/// store.
pub fn leave(process: usize) -> u64 {
    with(|it| it.leave(process))
}

/// Waits until a process has opened its store and made this number of calls, or has ended.
pub fn await_calls(process: usize, calls: u64) {
    if let Some(own) = OWN.get() {
        go_on(with(|it| it.await_calls(own.number, process, calls)));
    }
}

/// Forgets all processes.
pub fn forget_processes() {
    with(Schedule::forget_processes);
}

/// Does work that is not part of the story; no thread of the story runs during it.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let own = OWN.take();
    let done = work();
    OWN.set(own);
    done
}

/// The current time by the story's clock, in seconds and nanoseconds.
pub fn now() -> (i64, u32) {
    let nanos = OWN.get().map_or(0, |_| with(|it| it.time()));
    (FIRST_SECOND + (nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as u32)
}

/// Binds this thread and the threads that it starts to one processor, because passing the turn
/// costs little if no thread has to be woken on another processor.
fn stay_on_one_processor() {
    // SAFETY: the set is a plain bit field, live and as long as is said; 0 is this thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Only the thread that has the turn calls this, so the lock is always free.
fn with<T>(ask: impl FnOnce(&mut Schedule) -> T) -> T {
    ask(lock(&SCHEDULE).as_mut().expect("a story is played"))
}

/// Passes the turn to another thread, if there is one, and waits for this thread's next turn.
fn go_on(next: Option<&'static Turn>) {
    if let Some(next) = next {
        next.give(wake_in_kernel);
        wait_for_turn(OWN.get().expect("a thread of the story").turn);
    }
}

fn wait_for_turn(turn: &Turn) {
    // SAFETY: the word lives as long as the program.
    turn.wait(|word| unsafe {
        let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        real_syscall()(libc::SYS_futex, word.as_ptr(), op, 0, null_mut::<timespec>());
    });
}

fn wake_in_kernel(word: &AtomicU32) {
    // SAFETY: the word lives as long as the program.
    unsafe {
        let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        real_syscall()(libc::SYS_futex, word.as_ptr(), op, 1);
    }
}

/// Returns the function of the C library with this name.
fn real(kept: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = kept.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: the name ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "the C library has no {name:?}");
    kept.store(found, Ordering::Relaxed);
    found
}

/// The function of the C library with this name and type.
macro_rules! real {
    ($name:literal, $type:ty) => {{
        static KEPT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
        let found = real(&KEPT, $name);
        // SAFETY: the type is the one that the C library declares.
        unsafe { transmute::<*mut c_void, $type>(found) }
    }};
}

fn real_syscall() -> unsafe extern "C" fn(c_long, ...) -> c_long {
    real!(c"syscall", unsafe extern "C" fn(c_long, ...) -> c_long)
}

fn fail(error: c_int) -> c_long {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

fn nanos_of(time: timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// # Safety
/// As of syscall(2). Arguments that a caller did not pass are read from the places where they would
/// be, and passed on.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    match OWN.get() {
        Some(own) if number == libc::SYS_futex => match b as c_int & libc::FUTEX_CMD_MASK {
            libc::FUTEX_WAKE => with(|it| it.wake(a, c)) as c_long,
            // SAFETY: the caller gives a word, what it expects there, and a time or none.
            op @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => unsafe {
                let until = (d as *const timespec).as_ref().map(|time| nanos_of(*time));
                let word = &*(a as *const AtomicU32);
                wait_for_word(own, word, c as u32, until, op == libc::FUTEX_WAIT)
            },
            _ => fail(libc::ENOSYS),
        },
        // SAFETY: as the caller's.
        _ => unsafe { real_syscall()(number, a, b, c, d, e, f) },
    }
}

fn wait_for_word(
    own: Own,
    word: &AtomicU32,
    expected: u32,
    until: Option<u64>,
    is_relative: bool,
) -> c_long {
    if word.load(Ordering::SeqCst) != expected {
        return fail(libc::EAGAIN);
    }
    let address = word.as_ptr() as usize;
    go_on(with(|it| {
        let base = if is_relative { it.time() } else { 0 };
        it.wait(own.number, Wait::Word { address, until: until.map(|until| base + until) })
    }));
    if with(|it| it.is_late(own.number)) { fail(libc::ETIMEDOUT) } else { 0 }
}

type Begin = extern "C" fn(*mut c_void) -> *mut c_void;

struct Started {
    own: Own,
    begin: Begin,
    argument: *mut c_void,
}

extern "C" fn begun(started: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below gave it away.
    let Started { own, begin, argument } = *unsafe { Box::from_raw(started.cast::<Started>()) };
    wait_for_turn(own.turn);
    OWN.set(Some(own));
    let done = begin(argument);
    OWN.set(None);
    if let Some(next) = with(|it| it.end(own.number)) {
        next.give(wake_in_kernel);
    }
    done
}

/// # Safety
/// As of pthread_create(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    handle: *mut pthread_t,
    attributes: *const pthread_attr_t,
    begin: Begin,
    argument: *mut c_void,
) -> c_int {
    type Create =
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Begin, *mut c_void) -> c_int;
    let create = real!(c"pthread_create", Create);
    if OWN.get().is_none() {
        // SAFETY: as the caller's.
        return unsafe { create(handle, attributes, begin, argument) };
    }
    let starter = OWN.get().map(|own| own.number);
    let (number, turn) = with(|it| it.begin(starter));
    let started = Box::new(Started { own: Own { number, turn }, begin, argument });
    let started = Box::into_raw(started).cast::<c_void>();
    // SAFETY: as the caller's; `begun` takes what is given away here.
    let made = unsafe { create(handle, attributes, begun, started) };
    assert_eq!(made, 0, "a story needs its threads");
    // SAFETY: it was filled in just now.
    lock(&HANDLES).push((unsafe { *handle }, number));
    made
}

/// # Safety
/// As of pthread_join(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_join(handle: pthread_t, value: *mut *mut c_void) -> c_int {
    type Join = unsafe extern "C" fn(pthread_t, *mut *mut c_void) -> c_int;
    if let Some(own) = OWN.get() {
        let mut handles = lock(&HANDLES);
        let at = handles.iter().rposition(|(it, _)| *it == handle);
        let joined = at.map(|at| handles.remove(at).1);
        drop(handles);
        if let Some(joined) = joined.filter(|it| !with(|schedule| schedule.is_over(*it))) {
            go_on(with(|it| it.wait(own.number, Wait::EndOf(joined))));
        }
    }
    let join = real!(c"pthread_join", Join);
    // SAFETY: as the caller's. What is left of a thread that ended is short.
    unsafe { join(handle, value) }
}

#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    let Some(own) = OWN.get() else {
        let give_way = real!(c"sched_yield", unsafe extern "C" fn() -> c_int);
        // SAFETY: it takes nothing.
        return unsafe { give_way() };
    };
    go_on(with(|it| it.give_way(own.number)));
    0
}

/// # Safety
/// As of clock_nanosleep(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    type Sleep = unsafe extern "C" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
    let Some(own) = OWN.get() else {
        let sleep = real!(c"clock_nanosleep", Sleep);
        // SAFETY: as the caller's.
        return unsafe { sleep(clock, flags, time, left) };
    };
    // SAFETY: the caller gives a time.
    let nanos = nanos_of(unsafe { *time });
    let now = with(|it| it.time());
    let until = if flags & libc::TIMER_ABSTIME == 0 { now + nanos } else { nanos };
    if until.saturating_sub(now) <= CALL_SLEEP_NANOS {
        seam();
    } else {
        go_on(with(|it| it.wait(own.number, Wait::Moment(until))));
    }
    0
}

/// # Safety
/// As of nanosleep(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: as the caller's.
    match unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) } {
        0 => 0,
        error => fail(error) as c_int,
    }
}

/// # Safety
/// As of clock_gettime(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    type Ask = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;
    if OWN.get().is_none() {
        let ask = real!(c"clock_gettime", Ask);
        // SAFETY: as the caller's.
        return unsafe { ask(clock, time) };
    }
    let nanos = with(Schedule::ask_time);
    let first = if clock == libc::CLOCK_MONOTONIC { 0 } else { FIRST_SECOND };
    let tv_sec = first + (nanos / 1_000_000_000) as i64;
    let told = timespec { tv_sec, tv_nsec: (nanos % 1_000_000_000) as c_long };
    // SAFETY: the caller gives room for a time.
    unsafe { time.write(told) };
    0
}

/// # Safety
/// As of getrandom(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(bytes: *mut u8, len: usize, flags: u32) -> isize {
    type Fill = unsafe extern "C" fn(*mut u8, usize, u32) -> isize;
    if OWN.get().is_none() {
        let fill = real!(c"getrandom", Fill);
        // SAFETY: as the caller's.
        return unsafe { fill(bytes, len, flags) };
    }
    if len > 0 {
        // SAFETY: the caller gives so many bytes to be filled.
        with(|it| it.fill(unsafe { std::slice::from_raw_parts_mut(bytes, len) }));
    }
    len as isize
}
