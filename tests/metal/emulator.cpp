// Runs the blocks of a dispatch one after the other, the threads of a block as fibres.
//
// A thread that asks something of others is suspended until all threads of its block are, or have
// ended. Then those of a subgroup that wait at the same line go on, at the first such line: the
// threads that are furthest behind. A barrier of the block opens when nothing else can go on.

#include <cstdint>
#include <cstdlib>
#include <csetjmp>
#include <sys/mman.h>
#include <ucontext.h>

namespace {

const unsigned LANES = 32, MOST = 1024;
const size_t STACK = 1 << 20, GUARD = 1 << 12;
enum { BLOCK_BARRIER, SUBGROUP_BARRIER, SHUFFLE, FIRST, BALLOT };
enum State { RUNNABLE, WAITING, ENDED };

typedef void (*Entry)(
    const uint64_t* launch, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned);

struct Fibre {
    jmp_buf place;
    char* stack;
    State state;
    int kind, line;
    uint64_t value, result;
    unsigned lane;
};

Fibre fibres[MOST];
jmp_buf scheduler;
ucontext_t beginning;
unsigned current, block_now;
Entry entry_now;
const uint64_t* launch_now;
unsigned size_now, blocks_now;
const char* problem;

// Fibres are begun by makecontext, once, and go on by longjmp, which asks nothing of the system.
void body()
{
    for (;;) {
        unsigned t = current;
        entry_now(
            launch_now, block_now * size_now + t, t, block_now, blocks_now, t % LANES, t / LANES);
        fibres[t].state = ENDED;
        if (!_setjmp(fibres[t].place)) _longjmp(scheduler, 1);
    }
}

void begin(Fibre& fibre)
{
    void* memory = mmap(
        nullptr, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    mprotect(memory, GUARD, PROT_NONE);  // a stack that is too small ends the process
    fibre.stack = static_cast<char*>(memory) + GUARD;
    getcontext(&beginning);
    beginning.uc_stack.ss_sp = fibre.stack;
    beginning.uc_stack.ss_size = STACK;
    makecontext(&beginning, body, 0);
    setcontext(&beginning);
}

// Run a fibre until it waits, or has ended.
void run(unsigned t)
{
    current = t;
    if (_setjmp(scheduler)) return;
    if (fibres[t].stack) _longjmp(fibres[t].place, 1);
    begin(fibres[t]);
}

// Let the threads of a subgroup that are furthest behind go on; whether there are any.
bool exchange(unsigned first, unsigned end)
{
    int line = 0x7FFFFFFF;
    for (unsigned t = first; t < end; t++)
        if (fibres[t].state == WAITING && fibres[t].kind != BLOCK_BARRIER && fibres[t].line < line)
            line = fibres[t].line;
    uint64_t bits = 0, here = 0;
    unsigned lead = end;
    for (unsigned t = first; t < end; t++) {
        Fibre& fibre = fibres[t];
        if (fibre.state != WAITING || fibre.line != line || fibre.kind == BLOCK_BARRIER) continue;
        here |= uint64_t(1) << (t - first);
        bits |= (fibre.value & 1) << (t - first);
        lead = lead == end ? t : lead;
    }
    for (unsigned t = first; t < end; t++) {
        if (!(here >> (t - first) & 1)) continue;
        Fibre& fibre = fibres[t];
        unsigned source = first + fibre.lane;
        bool is_there = fibre.lane < LANES && source < end && (here >> fibre.lane & 1);
        switch (fibre.kind) {
        case SHUFFLE: fibre.result = is_there ? fibres[source].value : 0xDEADBEEF; break;
        case FIRST: fibre.result = fibres[lead].value; break;
        case BALLOT: fibre.result = bits; break;
        default: fibre.result = 0;
        }
        fibre.state = RUNNABLE;
    }
    return here != 0;
}

void open_barrier()
{
    int line = 0;
    for (unsigned t = 0; t < size_now; t++) {
        if (fibres[t].state != WAITING) {
            problem = "a thread that has ended does not come to a barrier of its block";
            continue;
        }
        if (line && fibres[t].line != line) problem = "threads of a block are at two barriers";
        line = fibres[t].line;
    }
    for (unsigned t = 0; t < size_now; t++)
        if (fibres[t].state == WAITING) fibres[t].state = RUNNABLE;
}

void run_block()
{
    for (unsigned t = 0; t < size_now; t++) fibres[t].state = RUNNABLE;
    for (unsigned round = 0;; round++) {
        for (unsigned k = 0; k < size_now; k++) {
            unsigned t = round % 2 ? size_now - 1 - k : k;  // no order is to be relied on
            if (fibres[t].state == RUNNABLE) run(t);
        }
        bool goes_on = false, waits = false;
        for (unsigned first = 0; first < size_now; first += LANES)
            goes_on |= exchange(first, first + LANES < size_now ? first + LANES : size_now);
        for (unsigned t = 0; t < size_now; t++) waits |= fibres[t].state == WAITING;
        if (!goes_on && !waits) return;
        if (!goes_on) open_barrier();
    }
}

}  // namespace

extern "C" uint64_t meet(int kind, int line, uint64_t value, unsigned lane)
{
    Fibre& fibre = fibres[current];
    fibre.kind = kind, fibre.line = line, fibre.value = value, fibre.lane = lane;
    fibre.state = WAITING;
    if (!_setjmp(fibre.place)) _longjmp(scheduler, 1);
    return fibre.result;
}

// Run a dispatch; gives what was wrong with it, or null. Only where threads exchange something do
// they need fibres.
extern "C" const char* run_dispatch(
    void* entry, const uint64_t* launch, unsigned blocks, unsigned size, int exchanges)
{
    entry_now = reinterpret_cast<Entry>(entry), launch_now = launch;
    blocks_now = blocks, size_now = size, problem = nullptr;
    for (block_now = 0; block_now < blocks; block_now++) {
        if (exchanges) {
            run_block();
            continue;
        }
        for (unsigned t = 0; t < size; t++)
            entry_now(launch, block_now * size + t, t, block_now, blocks, t % LANES, t / LANES);
    }
    return problem;
}
