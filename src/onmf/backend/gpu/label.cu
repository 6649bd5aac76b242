// Labels of the rows of an array, by the screen of screen.cuh. For steps that read the rows twice.
//
// The templates are in shared memory. Each warp has 16 rows at a time and reads them straight into registers, AHEAD
// groups of 16 features before it needs them; at the end of its rows, it reads the next ones.
//
// Macros set by the host, besides those of screen.cuh:
//   SCORERS    warps of a block
//   AHEAD      groups of 16 features that a warp reads ahead

#define STEPS ((FEATURES + 15) / 16)                        // groups of 16 features
#define TURNS ((STEPS + AHEAD - 1) / AHEAD * AHEAD)         // so that a group has the same place for every 16 rows

// Four features of two rows of a thread. The features after the last are 0.
__device__ __forceinline__ void read_ahead(const VALUE *one, const VALUE *other, int step, VALUE (&out)[2][4]) {
    bool there = 16 * step + 16 <= FEATURES || 16 * step + 4 * (threadIdx.x & 3) < FEATURES;
    #pragma unroll
    for (int f = 0; f < 4; f++) out[0][f] = out[1][f] = (VALUE)0;
    if (there) {
        read_four(one + 16 * step, out[0]);
        read_four(other + 16 * step, out[1]);
    }
}

extern "C" __global__ void __launch_bounds__(32 * SCORERS, 1) label_dense(
    const VALUE *X, int64 n,                  // IN (n, FEATURES)
    const float *norms,                       // IN (n,) ‖x‖
    const double *B, int k,                   // IN (k, COLUMNS), k <= 8 TILES
    int *labels)                              // OUT (n,)
{
    extern __shared__ uint4 screen[];         // (8 TILES, QUARTER)
    __shared__ float spread[PITCH];
    make_screen(B, k, screen, spread);
    __syncthreads();
    float error = error_of(spread);
    int lane = threadIdx.x & 31, q = lane & 3, r = lane >> 2, own = row_of(r);
    int64 row = 16 * ((int64)blockIdx.x * SCORERS + (threadIdx.x >> 5)), apart = 16 * (int64)gridDim.x * SCORERS;
    const uint4 *templates = screen + r * QUARTER + q;
    const VALUE *x[2][2];                     // two rows of these 16, and of the next
    #pragma unroll
    for (int m = 0; m < 2; m++)
        x[0][m] = X + (row + own + 8 * m < n ? row + own + 8 * m : n - 1) * FEATURES + 4 * q;
    __align__(16) VALUE ahead[AHEAD][2][4];
    #pragma unroll
    for (int a = 0; a < AHEAD; a++)
        if (a < STEPS) read_ahead(x[0][0], x[0][1], a, ahead[a]);
    for (; row < n; row += apart) {
        int inside = n - row < 16 ? (int)(n - row) : 16;
        float bound = lane < inside ? error * norms[row + lane] + TINY : 0.f;
        #pragma unroll
        for (int m = 0; m < 2; m++) {
            int64 next = row + apart + own + 8 * m;
            x[1][m] = X + (next < n ? next : n - 1) * FEATURES + 4 * q;
        }
        Scores s = {}, rests = {};
        #pragma unroll
        for (int t = 0; t < TURNS; t++) {
            VALUE (&now)[2][4] = ahead[t % AHEAD];
            if (t < STEPS) score_some(now, templates + 4 * t, s, rests);
            int then = t + AHEAD;
            if (then >= TURNS && then - TURNS < STEPS) read_ahead(x[1][0], x[1][1], then - TURNS, now);
            if (then < STEPS) read_ahead(x[0][0], x[0][1], then, now);
        }
        decide(s, rests, X + row * FEATURES, inside, bound, B, k, labels + row);
        #pragma unroll
        for (int m = 0; m < 2; m++) x[0][m] = x[1][m];
    }
}
