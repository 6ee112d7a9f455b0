"""Native code of the functions of POSIX threads, over those of Windows (see `language`).

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

_RESERVES = 0x10000  # STACK_SIZE_PARAM_IS_A_RESERVATION
_FOREVER = -1  # INFINITE

_DEFINED = {
    "pthread_attr_init(attributes)": "return 0",
    "pthread_attr_setstacksize(attributes, nbytes)": "return 0",
    "pthread_attr_destroy(attributes)": "return 0",
    "pthread_sigmask(how, signals, old)": "return 0",
    "sigfillset(signals)": "return 0",
    "sigaction(signal, changed, old)": "return 0",
    "pthread_mutex_init(mutex, attributes)": "InitializeSRWLock(mutex)",
    "pthread_mutex_lock(mutex)": "AcquireSRWLockExclusive(mutex)",
    "pthread_mutex_unlock(mutex)": "ReleaseSRWLockExclusive(mutex)",
    "pthread_cond_init(condition, attributes)": "InitializeConditionVariable(condition)",
    "pthread_cond_signal(condition)": "WakeConditionVariable(condition)",
    "pthread_cond_broadcast(condition)": "WakeAllConditionVariable(condition)",
    "pthread_cond_wait(condition, mutex)": (
        f"SleepConditionVariableSRW(condition, mutex, {_FOREVER}, 0)"
    ),
    "usleep(microseconds)": "Sleep(microseconds // 1000)",
}
SOURCE = f"""
def pthread_create(thread, attributes, function, argument):
    thread[0] = CreateThread(0, {STACK_BYTES}, function, argument, {_RESERVES}, 0)
    return thread[0] == 0

def pthread_join(thread, result):
    WaitForSingleObject(thread, {_FOREVER})
    CloseHandle(thread)
""" + "".join(f"\ndef {head}:\n    {body}\n" for head, body in _DEFINED.items())
