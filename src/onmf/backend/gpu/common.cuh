// Definitions that the kernels of the GPU backend share. Kernels do no validation, draw no random numbers and know no
// divergence. The host side is launch.py, which puts this file before each of the others.
//
// Symbols: X (n, p) rows, B (k, p) templates, BT (p, k) their transpose, w (n,) weights. VALUE is the type of an entry.
// There are no atomics. Every sum is added in an order that depends only on the data, the step before and the GPU, so
// results are bitwise reproducible.

typedef long long int64;
typedef unsigned long long size;

#define INFINITE (-1e300)         // replaces minus infinity in a template: its product with 0 is 0
#define INFINITE_SCORE (-1e150)   // scores below this include an infinite cost
#define NEVER (__longlong_as_double(0xfff0000000000000LL))
#define NOBODY 0x7fffffff
#define ALL 0xffffffffu

__device__ __forceinline__ void keep_better(double &best, int &winner, double other, int index) {
    if (other > best || (other == best && index < winner)) { best = other; winner = index; }
}

__device__ __forceinline__ double wide(double x) { return x; }
__device__ __forceinline__ double wide(float x) {
    double out;  // a cast would take one more instruction, because CuPy flushes denormals
    asm("cvt.f64.f32 %0, %1;" : "=d"(out) : "f"(x));
    return out;
}

// Add N numbers, 1, 2 or 4, over the lanes of a warp. With 2, each half of the warp ends with one of the sums in s[0];
// with 4, each quarter. Returns which.
template <int N> __device__ __forceinline__ int add_across_warp(double (&s)[N]) {
    int lane = threadIdx.x & 31, which = 0;
    #pragma unroll
    for (int apart = 16, left = N; apart; apart >>= 1) {
        bool upper = lane & apart;
        if (left > 1) {
            left /= 2;
            #pragma unroll
            for (int m = 0; m < left; m++)
                s[m] = (upper ? s[m + left] : s[m]) + __shfl_xor_sync(ALL, upper ? s[m] : s[m + left], apart);
            which = 2 * which + upper;
        } else {
            s[0] += __shfl_xor_sync(ALL, s[0], apart);
        }
    }
    return which;
}

#ifdef VALUE
// Four entries, at an address that is a multiple of 16 bytes.
__device__ __forceinline__ void read_four(const VALUE *x, VALUE (&out)[4]) {
    if (sizeof(VALUE) == 4) {
        *(float4 *)out = *(const float4 *)x;
    } else {
        ((double2 *)out)[0] = ((const double2 *)x)[0];
        ((double2 *)out)[1] = ((const double2 *)x)[1];
    }
}
#endif
