// Enough of CUDA's language to run kernels as C++: a thread of the system for each thread of a
// block, one block after the other.
#include <math.h>

#include <barrier>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

struct Place {
    unsigned x;
};
inline thread_local Place threadIdx, blockIdx, blockDim;
inline std::unique_ptr<std::barrier<>> everybody;
inline std::mutex one_at_a_time;

#define __device__
#define __global__
#define __shared__ static

inline void __syncthreads() { everybody->arrive_and_wait(); }
template <class T> inline T rsqrt(T v) { return 1 / sqrt(v); }
template <class T> inline void atomicAdd(T *to, T value) {
    std::lock_guard<std::mutex> lock(one_at_a_time);
    *to += value;
}

#include KERNELS

extern "C" void launch(void (*kernel)(Work), Work work, unsigned grid, unsigned block) {
    for (unsigned b = 0; b < grid; b++) {
        everybody = std::make_unique<std::barrier<>>(block);
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < block; t++)
            threads.emplace_back([=] {
                threadIdx.x = t, blockIdx.x = b, blockDim.x = block;
                kernel(work);
            });
        for (auto &thread : threads) thread.join();
    }
}
