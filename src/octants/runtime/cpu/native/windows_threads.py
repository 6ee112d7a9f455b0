"""LLVM IR of the functions of POSIX threads, over those of Windows (see `assembly`).

A mutex is a slim lock, which has the size of a pointer, as a condition variable has. There are no
signals: Ctrl-C waits for the launch.
"""

from __future__ import annotations

from octants.runtime.cpu.native.threads import STACK_BYTES

SYMBOLS = (
    "CreateThread WaitForSingleObject CloseHandle Sleep"
    " InitializeSRWLock AcquireSRWLockExclusive ReleaseSRWLockExclusive"
    " InitializeConditionVariable SleepConditionVariableSRW"
    " WakeConditionVariable WakeAllConditionVariable realloc free"
).split()
"""The functions of Windows and of its C library that the native runtime calls."""

DEFINED = (
    "pthread_create pthread_join pthread_sigmask sigfillset sigaction"
    " pthread_attr_init pthread_attr_setstacksize pthread_attr_destroy"
    " pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock"
    " pthread_cond_init pthread_cond_wait pthread_cond_signal pthread_cond_broadcast usleep"
).split()
"""The functions that this module defines."""

_NOTHING = (
    "pthread_attr_init(ptr %a)",
    "pthread_attr_setstacksize(ptr %a, i64 %b)",
    "pthread_attr_destroy(ptr %a)",
    "pthread_sigmask(i32 %a, ptr %b, ptr %c)",
    "sigfillset(ptr %a)",
    "sigaction(i32 %a, ptr %b, ptr %c)",
)
_CALLS = {
    "pthread_mutex_init(ptr %a, ptr %b)": "InitializeSRWLock(ptr %a)",
    "pthread_mutex_lock(ptr %a)": "AcquireSRWLockExclusive(ptr %a)",
    "pthread_mutex_unlock(ptr %a)": "ReleaseSRWLockExclusive(ptr %a)",
    "pthread_cond_init(ptr %a, ptr %b)": "InitializeConditionVariable(ptr %a)",
    "pthread_cond_signal(ptr %a)": "WakeConditionVariable(ptr %a)",
    "pthread_cond_broadcast(ptr %a)": "WakeAllConditionVariable(ptr %a)",
}

_RESERVES = 0x10000  # STACK_SIZE_PARAM_IS_A_RESERVATION
_FOREVER = -1  # INFINITE

TEXT = (
    f"""\
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @WaitForSingleObject(ptr, i32)
declare i32 @CloseHandle(ptr)
declare void @Sleep(i32)
declare i32 @SleepConditionVariableSRW(ptr, ptr, i32, i32)

define internal i32 @pthread_create(ptr %thread, ptr %attributes, ptr %work, ptr %worker) {{
  %handle = call ptr @CreateThread(ptr null, i64 {STACK_BYTES}, ptr %work, ptr %worker, \
i32 {_RESERVES}, ptr null)
  store ptr %handle, ptr %thread
  %refused = icmp eq ptr %handle, null
  %status = zext i1 %refused to i32
  ret i32 %status
}}

define internal i32 @pthread_join(ptr %thread, ptr %result) {{
  %ended = call i32 @WaitForSingleObject(ptr %thread, i32 {_FOREVER})
  %closed = call i32 @CloseHandle(ptr %thread)
  ret i32 %ended
}}

define internal i32 @pthread_cond_wait(ptr %condition, ptr %mutex) {{
  %woken = call i32 @SleepConditionVariableSRW(ptr %condition, ptr %mutex, i32 {_FOREVER}, i32 0)
  ret i32 0
}}

define internal i32 @usleep(i32 %microseconds) {{
  %milliseconds = udiv i32 %microseconds, 1000
  call void @Sleep(i32 %milliseconds)
  ret i32 0
}}
"""
    + "".join(f"define internal i32 @{head} {{\n  ret i32 0\n}}\n" for head in _NOTHING)
    + "".join(f"declare void @{call.replace(' %a', '')}\n" for call in _CALLS.values())
    + "".join(
        f"define internal i32 @{head} {{\n  call void @{call}\n  ret i32 0\n}}\n"
        for head, call in _CALLS.items()
    )
)
