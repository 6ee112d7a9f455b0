/* Vectors of floats, one work item in each lane, and functions of them: the vector extensions of GCC
   and Clang, as wide as the machine has them.

   `sine`, `cosine` and `sine_cosine` are accurate to 2 ulp of the result, or 1e-7, whichever is more,
   for arguments up to 1e4; `inverse_root` to 2 ulp. The bench measures and prints both. */
#ifndef VECTOR_H
#define VECTOR_H

#include <stdint.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

static inline vec splat(float value) { return value - (vec){0}; }

/* mask ? yes : no, where a mask has all bits or none. */
static inline vec choose(ivec mask, vec yes, vec no) {
    return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask));
}

static inline int lanes_before(long begin, long end) {
    return end - begin < LANES ? (int)(end - begin > 0 ? end - begin : 0) : LANES;
}

/* Member k of the items from `begin` to before `end` in an array of rows; zero beyond them. */
static vec load(const float *array, long width, long k, long begin, long end) {
    float row[LANES] = {0};
    vec result;
    for (int l = 0; l < lanes_before(begin, end); l++) row[l] = array[(begin + l) * width + k];
    memcpy(&result, row, sizeof(row));
    return result;
}

static void store(float *array, long width, long k, long begin, long end, vec value) {
    float row[LANES];
    memcpy(row, &value, sizeof(row));
    for (int l = 0; l < lanes_before(begin, end); l++) array[(begin + l) * width + k] = row[l];
}

static void add(float *array, long width, long k, long begin, long end, vec value) {
    float row[LANES];
    memcpy(row, &value, sizeof(row));
    for (int l = 0; l < lanes_before(begin, end); l++) array[(begin + l) * width + k] += row[l];
}

/* Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits. */
#define MAGIC 12582912.0f
#define PI_HIGH 0x1.921fb6p+1f
#define PI_LOW -0x1.777a5cp-24f

/* sin(r) for |r| <= pi / 2, with the sign of (-1)^n. */
static inline vec sine_of_rest(vec r, ivec n) {
    vec s = r * r;
    vec p = splat(2.608945182961401e-06f) * s - 0.00019811117923966638f;
    p = p * s + 0.008333088229961585f;
    p = p * s - 0.16666660464431113f;
    r = r + r * s * p;
    return (vec)((ivec)r ^ (n << 31));
}

static inline vec sine(vec x) {
    vec q = x * 0.318309886f + MAGIC;
    ivec n = (ivec)q;
    q -= MAGIC;
    return sine_of_rest(x - q * PI_HIGH - q * PI_LOW, n);
}


/* Both at once: the angle to the nearest multiple of pi / 2, two polynomials, and an exchange. */
static inline vec sine_cosine(vec x, vec *cosine_too) {
    vec q = x * 0.636619772f + MAGIC;
    ivec n = (ivec)q;
    q -= MAGIC;
    vec r = x - q * (PI_HIGH / 2) - q * (PI_LOW / 2), s = r * r;
    vec p = splat(-0.00019517347175041527f) * s + 0.008332178490901985f;
    p = p * s - 0.16666654948906687f;
    vec sin_r = r + r * s * p;
    p = splat(2.4438488471407417e-05f) * s - 0.001388736782661867f;
    p = p * s + 0.04166664687252247f;
    vec cos_r = p * s * s + (s * -0.5f + 1.0f);
    ivec odd = -(n & 1);
    *cosine_too = (vec)((ivec)choose(odd, sin_r, cos_r) ^ (((n + 1) & 2) << 30));
    return (vec)((ivec)choose(odd, cos_r, sin_r) ^ ((n & 2) << 30));
}

/* 1 / sqrt(x) for normal positive x: the machine's approximation, and a step of Newton's method. */
static inline vec inverse_root(vec x) {
#if defined(__AVX512F__)
    vec r = (vec)_mm512_rsqrt14_ps((__m512)x);
    return r + r * (0.5f - 0.5f * x * r * r);
#elif defined(__AVX__)
    vec r = (vec)_mm256_rsqrt_ps((__m256)x);
    return r + r * (0.5f - 0.5f * x * r * r);
#else
    for (int l = 0; l < LANES; l++) x[l] = 1 / __builtin_sqrtf(x[l]);
    return x;
#endif
}

#endif
