// The functions of Windows that the native runtime calls, over POSIX threads.
// A lock or a condition variable of Windows is one word, so it refers to one of these.

#include <cstdlib>
#include <pthread.h>
#include <unistd.h>

static int calls;

static pthread_mutex_t* mutex_of(void** lock) { return static_cast<pthread_mutex_t*>(*lock); }
static pthread_cond_t* condition_of(void** place) { return static_cast<pthread_cond_t*>(*place); }

extern "C" {
int count_calls() { return calls; }

void* CreateThread(void*, size_t stack, void* (*work)(void*), void* worker, int flags, void*)
{
    if (stack < 1 << 20 || flags != 0x10000) abort();
    calls++;
    pthread_t* thread = new pthread_t;
    if (pthread_create(thread, nullptr, work, worker)) return nullptr;
    return thread;
}
int WaitForSingleObject(void* thread, int patience)
{
    if (patience != -1) abort();
    return pthread_join(*static_cast<pthread_t*>(thread), nullptr);
}
int CloseHandle(void* thread) { delete static_cast<pthread_t*>(thread); return 1; }
void Sleep(int milliseconds) { usleep(1000 * milliseconds); }

void InitializeSRWLock(void** lock)
{
    *lock = new pthread_mutex_t;
    pthread_mutex_init(mutex_of(lock), nullptr);
}
void AcquireSRWLockExclusive(void** lock) { pthread_mutex_lock(mutex_of(lock)); }
void ReleaseSRWLockExclusive(void** lock) { pthread_mutex_unlock(mutex_of(lock)); }

void InitializeConditionVariable(void** condition)
{
    *condition = new pthread_cond_t;
    pthread_cond_init(condition_of(condition), nullptr);
}
int SleepConditionVariableSRW(void** condition, void** lock, int patience, int flags)
{
    if (patience != -1 || flags) abort();
    return !pthread_cond_wait(condition_of(condition), mutex_of(lock));
}
void WakeConditionVariable(void** condition) { pthread_cond_signal(condition_of(condition)); }
void WakeAllConditionVariable(void** condition) { pthread_cond_broadcast(condition_of(condition)); }
}
