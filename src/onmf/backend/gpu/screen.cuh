// Labels of dense rows, found by a screen on the tensor cores. Shared by step.cu and label.cu.
//
// With m_j the midrange of the templates, x_j and b_kj - m_j are each split into a sum of two bfloat16 numbers (8 bits).
// The tensor cores compute the scores, up to Σ_j x_j m_j and an error of at most ERROR ‖x‖ ‖d‖, d_j = max_k |b_kj - m_j|:
// each bfloat16 has a relative error of 2^-8, the product of the two lower parts is left out, and the tensor cores
// truncate terms to 24 bits. Templates within two such bounds of the best one are scored again in float64. If the bound
// is NaN or too large, every template passes.
//
// Macros set by the host, besides VALUE:
//   FEATURES    columns of the rows
//   COLUMNS     columns of the templates; if they are fewer, the others of the rows are 0
//   TILES       tiles of 8 templates; at most 8

#define SLICES ((FEATURES + 31) / 32)                                            // features of a row per lane
#define PITCH ((FEATURES + 15) / 16 * 16 + ((FEATURES + 15) / 16 % 2 ? 0 : 16))  // odd multiple of 16: no conflicts
#define QUARTER (PITCH / 4)                                                      // 16-byte parts of a template
#define ERROR (3 * 0x1p-16 + (PITCH / 16 * 19 + 8) * 0x1p-23)                    // of three products, and of sums
#define TOO_LARGE 1e30f                                                          // float cannot bound such errors
#define LARGEST_TEMPLATE 1e5f                                                    // larger ones are not screened
#define TINY 0x1p-90f                                                            // bounds the sum of float underflows

#if TILES <= 4
typedef unsigned Set;                          // a set of templates, as bits
__device__ __forceinline__ int first_of(Set set) { return __ffs(set) - 1; }
#else
typedef unsigned long long Set;
__device__ __forceinline__ int first_of(Set set) { return __ffsll(set) - 1; }
#endif

typedef float Scores[TILES][4];                // of two rows and some templates, as the tensor cores return them

// Two numbers as bfloat16 in one register, the first in its lower half.
__device__ __forceinline__ unsigned packed(float first, float second) {
    unsigned out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
    return out;
}

// The rounding errors of two such numbers, as bfloat16.
__device__ __forceinline__ unsigned rest(float first, float second, unsigned both) {
    return packed(first - __uint_as_float(both << 16), second - __uint_as_float(both & 0xffff0000u));
}

// sums += products of 16 rows, 16 features and 8 templates.
__device__ __forceinline__ void multiply(float (&s)[4], const unsigned (&x)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(b0), "r"(b1));
}

// The templates in the form of the screen, four features in 16 bytes, and d of each feature; d is infinite if a
// template is too large for the screen. Called by a whole block. Threads that share four features take different
// templates: each finds the range of its own, then all of them read these ranges. Requires QUARTER <= blockDim.x.
__device__ __forceinline__ void make_screen(const double *B, int k, uint4 *screen, float *spread) {
    double *ranges = (double *)screen;         // (groups, QUARTER, 8), before the screen is written
    int groups = blockDim.x / QUARTER, group = threadIdx.x / QUARTER, at = threadIdx.x % QUARTER, most = 2 * TILES;
    groups = groups < most ? groups : most;    // their ranges fit
    double low[4] = {}, high[4] = {}, middle[4];
    bool works = group < groups;
    if (works) {
        #pragma unroll
        for (int f = 0; f < 4; f++) {
            int j = 4 * at + f;
            if (j < COLUMNS) low[f] = high[f] = B[j];
            #pragma unroll 4
            for (int c = group; c < k && j < COLUMNS; c += groups) {
                double b = B[(size)c * COLUMNS + j];
                low[f] = fmin(low[f], b);
                high[f] = fmax(high[f], b);
            }
        }
        #pragma unroll
        for (int f = 0; f < 4; f++) {
            ranges[8 * threadIdx.x + f] = low[f];
            ranges[8 * threadIdx.x + 4 + f] = high[f];
        }
    }
    __syncthreads();
    if (works) {
        for (int other = 0; other < groups; other++) {
            const double *range = ranges + 8 * (other * QUARTER + at);
            #pragma unroll
            for (int f = 0; f < 4; f++) {
                low[f] = fmin(low[f], range[f]);
                high[f] = fmax(high[f], range[4 + f]);
            }
        }
        #pragma unroll
        for (int f = 0; f < 4; f++) {
            bool fine = fabs(low[f]) < LARGEST_TEMPLATE && fabs(high[f]) < LARGEST_TEMPLATE;
            middle[f] = fine ? low[f] + (high[f] - low[f]) / 2 : 0.0;
            if (group == 0)
                spread[4 * at + f] = fine ? (float)fmax(high[f] - middle[f], middle[f] - low[f]) : __int_as_float(0x7f800000);
        }
    }
    __syncthreads();
    if (!works) return;
    #pragma unroll 2
    for (int c = group; c < 8 * TILES; c += groups) {
        float b[4];
        #pragma unroll
        for (int f = 0; f < 4; f++) {
            int j = 4 * at + f;
            b[f] = c < k && j < COLUMNS ? (float)(B[(size)c * COLUMNS + j] - middle[f]) : 0.f;
        }
        unsigned x = packed(b[0], b[1]), y = packed(b[2], b[3]);
        screen[c * QUARTER + at] = make_uint4(x, y, rest(b[0], b[1], x), rest(b[2], b[3], y));
    }
}

// ERROR ‖d‖, with a margin for the rounding errors of the norms.
__device__ __forceinline__ float error_of(const float *spread) {
    double s = 0.0;
    for (int j = threadIdx.x & 31; j < FEATURES; j += 32) s += wide(spread[j]) * wide(spread[j]);
    #pragma unroll
    for (int apart = 16; apart; apart >>= 1) s += __shfl_xor_sync(ALL, s, apart);
    return (float)(1.001 * ERROR * sqrt(s)) + TINY;
}

// Add the products of 16 rows and 16 features to the scores. A thread has four features of row r and of row r + 8, r =
// lane / 4, and reads the templates from there on.
__device__ __forceinline__ void score_some(const VALUE (&raw)[2][4], const uint4 *screen, Scores &s, Scores &rests) {
    unsigned high[4], low[4];
    #pragma unroll
    for (int f = 0; f < 4; f++) {
        float one = (float)raw[f & 1][f & 2], other = (float)raw[f & 1][(f & 2) + 1];
        high[f] = packed(one, other);
        low[f] = rest(one, other, high[f]);
    }
    #pragma unroll
    for (int c = 0; c < TILES; c++) {
        uint4 b = screen[8 * c * QUARTER];
        multiply(s[c], high, b.x, b.y);
        multiply(rests[c], high, b.z, b.w);
        multiply(rests[c], low, b.x, b.y);
    }
}

// The best of the candidate templates for a row, in float64. Called by a whole warp.
__device__ __noinline__ int best_of(const VALUE *x, const double *B, Set candidates) {
    int lane = threadIdx.x & 31, winner = NOBODY;
    double best = NEVER;
    while (candidates) {
        int c = first_of(candidates);
        candidates &= candidates - 1;
        double s = 0.0;
        #pragma unroll
        for (int u = 0; u < SLICES; u++) {
            int j = lane + 32 * u;
            if (j < COLUMNS) s += wide(x[j]) * fmax(B[(size)c * COLUMNS + j], INFINITE);
        }
        #pragma unroll
        for (int apart = 16; apart; apart >>= 1) s += __shfl_xor_sync(ALL, s, apart);
        keep_better(best, winner, s, c);
    }
    return best >= INFINITE_SCORE ? winner : 0;
}

// Which of 8 rows a thread reads for the tensor cores. In shared memory, rows that are read together lie on different
// banks, if possible.
__device__ __forceinline__ int row_of(int r) {
    const int chunks = FEATURES * (int)sizeof(VALUE) / 16;
    if (chunks % 4 == 2) return r & 4 | (r & 1) << 1 | (r & 2) >> 1;
    if (chunks % 2 == 1) return (r & 1) << 2 | r >> 1;
    return r;
}

// Labels of 16 rows from their scores. Only the first `inside` rows exist. Lane i has the error bound of row i.
__device__ __forceinline__ void decide(
    Scores &s, const Scores &rests, const VALUE *rows, int inside, float error, const double *B, int k,
    int *found)
{
    int lane = threadIdx.x & 31, q = lane & 3, r = lane >> 2;
    #pragma unroll
    for (int m = 0; m < 2; m++) {
        int place = 8 * m + row_of(r);
        float top = -3e38f;
        #pragma unroll
        for (int c = 0; c < TILES; c++)
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                s[c][2 * m + h] += rests[c][2 * m + h];
                if (8 * c + 2 * q + h < k) top = fmaxf(top, s[c][2 * m + h]);
            }
        #pragma unroll
        for (int apart = 1; apart < 4; apart <<= 1) top = fmaxf(top, __shfl_xor_sync(ALL, top, apart));
        float bound = __shfl_sync(ALL, error, place), least = top - 2 * bound;
        bool unbounded = !(bound < TOO_LARGE);
        Set passed = 0;
        #pragma unroll
        for (int c = 0; c < TILES; c++)
            #pragma unroll
            for (int h = 0; h < 2; h++)
                if (unbounded || !(s[c][2 * m + h] < least)) passed |= (Set)1 << (8 * c + h);
        passed = passed << 2 * q & ~(Set)0 >> 8 * sizeof(Set) - k;
        #pragma unroll
        for (int apart = 1; apart < 4; apart <<= 1) passed |= __shfl_xor_sync(ALL, passed, apart);
        int winner = first_of(passed);
        unsigned open = __ballot_sync(ALL, q == 0 && place < inside && (passed & passed - 1));
        while (open) {
            int from = __ffs(open) - 1;
            open &= open - 1;
            int best = best_of(rows + (8 * m + row_of(from >> 2)) * FEATURES, B, __shfl_sync(ALL, passed, from));
            if (lane == from) winner = best;
        }
        if (q == 0 && place < inside) found[place] = winner;
    }
}
