// Runs the blocks of a dispatch one after the other, the threads of a block as fibres.
//
// A thread that asks something of others is suspended until all threads of its block are, or have
// ended. Then lanes of a subgroup whose mask names just them go on, if they wait at one line. CUDA's
// `activemask`, and all that Metal has, takes no mask: those at the first line go on, which are the
// threads that are furthest behind. A barrier of the block opens when nothing else can go on.

// Where compilers define this by default, `longjmp` aborts if it leaves a stack for another one.
#undef _FORTIFY_SOURCE

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csetjmp>
#include <sys/mman.h>
#include <ucontext.h>

namespace {

const unsigned LANES = 32, MOST = 1024;
const size_t STACK = 1 << 20, GUARD = 1 << 12;
const uint64_t NOTHING = 0xFFDEADBE;  // what a lane gets from one that takes no part; a NaN
enum { BLOCK_BARRIER, SUBGROUP_BARRIER, SHUFFLE, FIRST, BALLOT, MATCH };
enum { READS, WRITES, UPDATES };
enum State { RUNNABLE, WAITING, ENDED };

typedef void (*Entry)(
    const uint64_t* launch, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned);

struct Fibre {
    jmp_buf place;
    char* stack;
    bool is_begun;
    State state;
    int kind, line;
    uint32_t mask;  // the lanes that it waits for; 0: those that happen to be there
    uint64_t value, result;
    unsigned lane;
};

Fibre fibres[MOST];
jmp_buf scheduler;
ucontext_t beginning;
unsigned current, block_now;
Entry entry_now;
void (*begin_block)();  // of CUDA
const uint64_t *launch_now, *parameters_now;
unsigned size_now, blocks_now;
uint64_t random_now;
const char* problem;
unsigned barriers;  // that the block has passed, and that its subgroups have
unsigned subgroup_barriers[MOST / LANES];

// What a block of CUDA shares: who touched a byte last, after how many barriers.
struct Touch {
    unsigned thread, barriers, subgroup_barriers;
    int line;
};
struct Shadow {
    Touch writer, update, readers[2];
};
const unsigned SHARED = 1 << 17;
Shadow shadows[SHARED];
struct Range {
    char* start;
    uint64_t size;
    Shadow* shadows;
} shared[64];
unsigned arrays;
char message[200];

void check_race(const Touch& one, const Touch& other)
{
    if (!one.line || one.thread == other.thread || one.barriers != other.barriers) return;
    if (one.thread / LANES == other.thread / LANES
        && one.subgroup_barriers != other.subgroup_barriers)
        return;
    snprintf(
        message, sizeof message, "threads %u and %u of block %u race in shared memory, at %d and %d",
        one.thread, other.thread, block_now, one.line, other.line);
    problem = message;
}

void run_thread(unsigned t)
{
    if (parameters_now)
        reinterpret_cast<void (*)(const uint64_t*, const uint64_t*)>(entry_now)(
            parameters_now, launch_now);
    else
        entry_now(
            launch_now, block_now * size_now + t, t, block_now, blocks_now, t % LANES, t / LANES);
}

// Fibres are begun by makecontext, once, and go on by longjmp, which asks nothing of the system.
void body()
{
    for (;;) {
        unsigned t = current;
        run_thread(t);
        fibres[t].state = ENDED;
        if (!_setjmp(fibres[t].place)) _longjmp(scheduler, 1);
    }
}

void begin(Fibre& fibre)
{
    if (!fibre.stack) {
        void* memory = mmap(
            nullptr, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) abort();
        mprotect(memory, GUARD, PROT_NONE);  // a stack that is too small ends the process
        fibre.stack = static_cast<char*>(memory) + GUARD;
    }
    fibre.is_begun = true;
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
    if (fibres[t].is_begun) _longjmp(fibres[t].place, 1);
    begin(fibres[t]);
}

// Let lanes go on that have met, those of a subgroup with these bits.
void release(unsigned first, uint32_t here)
{
    uint64_t bits = 0;
    for (unsigned k = 0; k < LANES; k++)
        if (here >> k & 1) bits |= (fibres[first + k].value & 1) << k;
    for (unsigned k = 0; k < LANES; k++) {
        if (!(here >> k & 1)) continue;
        Fibre& fibre = fibres[first + k];
        bool is_there = fibre.lane < LANES && (here >> fibre.lane & 1);
        switch (fibre.kind) {
        case SHUFFLE: fibre.result = is_there ? fibres[first + fibre.lane].value : NOTHING; break;
        case FIRST: fibre.result = fibres[first + __builtin_ctz(here)].value; break;
        case BALLOT: fibre.result = bits; break;
        case MATCH:
            fibre.result = 0;
            for (unsigned j = 0; j < LANES; j++)
                if (here >> j & 1 && fibres[first + j].value == fibre.value)
                    fibre.result |= uint64_t(1) << j;
            break;
        default: fibre.result = 0;
        }
        fibre.state = RUNNABLE;
    }
}

// A part of some lanes, or all: no code may rely on which lanes are active together.
uint32_t some_of(uint32_t lanes)
{
    random_now = random_now * 6364136223846793005u + 1442695040888963407u;
    uint32_t part = lanes & uint32_t(random_now >> 32);
    return random_now >> 30 & 1 && part ? part : lanes;
}

// Let threads of a subgroup go on that wait for nothing else; whether there are any.
bool exchange(unsigned first, unsigned end)
{
    int line = 0x7FFFFFFF;
    bool goes_on = false;
    for (unsigned t = first; t < end; t++) {
        Fibre& fibre = fibres[t];
        if (fibre.state != WAITING || fibre.kind == BLOCK_BARRIER) continue;
        if (!fibre.mask) {
            line = fibre.line < line ? fibre.line : line;
            continue;
        }
        uint32_t here = 0;
        bool is_met = fibre.mask >> (t - first) & 1;
        for (unsigned u = first; u < end && is_met; u++) {
            Fibre& other = fibres[u];
            if (!(fibre.mask >> (u - first) & 1) || other.state == ENDED) continue;
            here |= uint32_t(1) << (u - first);
            is_met = other.state == WAITING && other.line == fibre.line && other.mask == fibre.mask;
        }
        if (!is_met) continue;
        subgroup_barriers[first / LANES] += fibre.kind == SUBGROUP_BARRIER;
        release(first, here);
        goes_on = true;
    }
    uint32_t here = 0;
    for (unsigned t = first; t < end && !goes_on; t++) {
        Fibre& fibre = fibres[t];
        if (fibre.state == WAITING && fibre.kind != BLOCK_BARRIER && fibre.line == line)
            here |= uint32_t(!fibre.mask) << (t - first);
    }
    if (here) release(first, parameters_now ? some_of(here) : here);
    return goes_on || here;
}

void open_barrier()
{
    int line = 0;
    uint64_t any = 0;
    for (unsigned t = 0; t < size_now; t++) {
        if (fibres[t].state == ENDED) {
            if (!parameters_now)
                problem = "a thread that has ended does not come to a barrier of its block";
            continue;
        }
        if (fibres[t].kind != BLOCK_BARRIER) problem = "lanes wait for others that do not come";
        if (line && fibres[t].line != line) problem = "threads of a block are at two barriers";
        line = fibres[t].line, any |= fibres[t].value;
    }
    barriers++;
    for (unsigned t = 0; t < size_now; t++)
        if (fibres[t].state == WAITING) fibres[t].state = RUNNABLE, fibres[t].result = any;
}

void run_block()
{
    for (unsigned t = 0; t < size_now; t++) fibres[t].state = RUNNABLE;
    for (unsigned round = block_now; !problem; round++) {
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
    for (unsigned t = 0; t < size_now; t++)
        if (fibres[t].state != ENDED) fibres[t].is_begun = false;  // it never goes on
}

uint64_t wait(int kind, int line, uint32_t mask, uint64_t value, unsigned lane)
{
    Fibre& fibre = fibres[current];
    fibre.kind = kind, fibre.line = line, fibre.mask = mask, fibre.value = value, fibre.lane = lane;
    fibre.state = WAITING;
    if (!_setjmp(fibre.place)) _longjmp(scheduler, 1);
    return fibre.result;
}

}  // namespace

extern "C" uint64_t meet(int kind, int line, uint64_t value, unsigned lane)
{
    return wait(kind, line, 0, value, lane);
}

// Run a dispatch; gives what was wrong with it, or null. Only where threads exchange something do
// they need fibres.
extern "C" const char* run_dispatch(
    void* entry, const uint64_t* launch, unsigned blocks, unsigned size, int exchanges)
{
    entry_now = reinterpret_cast<Entry>(entry), launch_now = launch;
    blocks_now = blocks, size_now = size, problem = nullptr;
    for (block_now = 0; block_now < blocks && !problem; block_now++) {
        arrays = 0;
        if (begin_block) begin_block();
        if (exchanges) {
            run_block();
            continue;
        }
        for (unsigned t = 0; t < size; t++) run_thread(current = t);
    }
    return problem;
}

// Run a grid of CUDA, whose entry takes the addresses of the parameters and of the launch words;
// `begin` is called before each block.
extern "C" const char* run_grid(
    void* entry, void* begin, const uint64_t* parameters, const uint64_t* launch, unsigned blocks,
    unsigned size, int exchanges, uint64_t seed)
{
    begin_block = reinterpret_cast<void (*)()>(begin), parameters_now = parameters;
    random_now = seed;
    run_dispatch(entry, launch, blocks, size, exchanges);
    begin_block = nullptr, parameters_now = nullptr;
    return problem;
}

// NVVM's intrinsics; each is given the line of its call besides its operands.
#define NVVM(type, name, ...) extern "C" type nvvm_##name(int line, ##__VA_ARGS__)

namespace {

union Word {
    float f;
    uint32_t bits;
};

float shuffled(int line, uint32_t mask, float value, unsigned lane)
{
    Word word = {value};
    word.bits = wait(SHUFFLE, line, mask, word.bits, lane);
    return word.f;
}

uint32_t voted(int line, uint32_t mask, unsigned condition)
{
    return wait(BALLOT, line, mask, condition & 1, 0);
}

}  // namespace

NVVM(unsigned, read_ptx_sreg_tid_x) { return current; }
NVVM(unsigned, read_ptx_sreg_ntid_x) { return size_now; }
NVVM(unsigned, read_ptx_sreg_ctaid_x) { return block_now; }
NVVM(unsigned, read_ptx_sreg_nctaid_x) { return blocks_now; }
NVVM(void, griddepcontrol_launch_dependents) {}
NVVM(void, griddepcontrol_wait) {}
NVVM(void, membar_gl) {}
NVVM(void, membar_cta) {}
NVVM(void, bar_warp_sync, uint32_t mask) { wait(SUBGROUP_BARRIER, line, mask, 0, 0); }
NVVM(void, barrier_cta_sync_aligned_all, int) { wait(BLOCK_BARRIER, line, 0, 0, 0); }
NVVM(unsigned, barrier_cta_red_or_aligned_all, int, unsigned condition)
{ return wait(BLOCK_BARRIER, line, 0, condition & 1, 0); }
NVVM(uint32_t, activemask) { return wait(BALLOT, line, 0, 1, 0); }
NVVM(uint32_t, match_any_sync_i64, uint32_t mask, uint64_t value)
{ return wait(MATCH, line, mask, value, 0); }
NVVM(uint32_t, vote_ballot_sync, uint32_t mask, unsigned x) { return voted(line, mask, x); }
NVVM(unsigned, vote_any_sync, uint32_t mask, unsigned x) { return voted(line, mask, x) != 0; }
NVVM(unsigned, vote_all_sync, uint32_t mask, unsigned x) { return !voted(line, mask, ~x); }
NVVM(uint32_t, shfl_sync_idx_i32, uint32_t mask, uint32_t x, unsigned lane, int)
{ return wait(SHUFFLE, line, mask, x, lane % LANES); }
NVVM(float, shfl_sync_idx_f32, uint32_t mask, float x, unsigned lane, int)
{ return shuffled(line, mask, x, lane % LANES); }
NVVM(uint32_t, shfl_sync_bfly_i32, uint32_t mask, uint32_t x, unsigned distance, int)
{ return wait(SHUFFLE, line, mask, x, current % LANES ^ distance); }
NVVM(float, shfl_sync_bfly_f32, uint32_t mask, float x, unsigned distance, int)
{ return shuffled(line, mask, x, current % LANES ^ distance); }
NVVM(void, share, char* memory, uint64_t size)
{
    Shadow* first = arrays ? shared[arrays - 1].shadows + shared[arrays - 1].size : shadows;
    if (arrays == 64 || first + size > shadows + SHARED) abort();
    memset(memory, 0xFF, size);  // NaNs
    memset(static_cast<void*>(first), 0, size * sizeof(Shadow));
    shared[arrays++] = {memory, size, first};
}
NVVM(void, touch, char* memory, uint64_t size, int kind)
{
    const Touch now = {current, barriers, subgroup_barriers[current / LANES], line};
    for (unsigned k = 0; k < arrays; k++) {
        uint64_t at = memory - shared[k].start;
        if (at >= shared[k].size) continue;
        if (at + size > shared[k].size) problem = "an access ends behind a shared array";
        for (uint64_t end = at + size; at < end && at < shared[k].size; at++) {
            Shadow& shadow = shared[k].shadows[at];
            check_race(shadow.writer, now);
            if (kind != UPDATES) check_race(shadow.update, now);
            if (kind == READS) {
                if (shadow.readers[0].thread != current) shadow.readers[1] = shadow.readers[0];
                shadow.readers[0] = now;
                continue;
            }
            check_race(shadow.readers[0], now), check_race(shadow.readers[1], now);
            (kind == UPDATES ? shadow.update : shadow.writer) = now;
        }
    }
}
NVVM(float, ex2_approx_f, float x) { return exp2f(x); }
NVVM(float, ex2_approx_f32, float x) { return exp2f(x); }  // which LLVM 22 makes of it
NVVM(float, sin_approx_f, float x) { return sinf(x); }
NVVM(float, cos_approx_f, float x) { return cosf(x); }
NVVM(float, rsqrt_approx_f, float x) { return 1 / sqrtf(x); }
NVVM(float, rsqrt_approx_ftz_f, float x) { return 1 / sqrtf(x); }
NVVM(float, div_full, float x, float y) { return x / y; }
