// Label and best score of each row, and partial_tcj = Σ v_i x_ij over the rows of stretch t and label c, in one read of
// X. A stretch is a number of consecutive tiles.
//
// A block moves tiles of rows through PLACES places in shared memory. SCORERS of its warps find the labels of a tile;
// then ADDERS other warps add its rows to the sums. Each adder has LABELS duties. A duty is a label, or a part of the
// rows of a label; its template and sums are in registers. Labels that had many rows in the last step get several
// duties. One more warp fetches tiles and writes labels and scores. The warps synchronise at three barriers per place:
// the tile has arrived, its rows have labels, the place is free again.
//
// The screen of screen.cuh finds the labels. The adders compute the score of the label in float64.
//
// Macros set by the host, besides those of screen.cuh:
//   SCORERS, ADDERS      numbers of warps that label rows, and that sum them
//   LABELS               duties of an adder
//   PLACES               tiles of rows in shared memory
//   WEIGHTED, BY_SCORE   whether rows are weighted by given weights, and by their scores

#define TILE (16 * SCORERS)                                                      // rows of a tile
#define DUTIES (ADDERS * LABELS)
#define WARPS (SCORERS + ADDERS + 1)
#define ROOM (TILE * FEATURES + 16)                                              // entries of a place
#define AT_ONCE (BY_SCORE ? 2 : 4)                                               // rows of a label added at once

#ifndef HOPPER
#define HOPPER (__CUDA_ARCH__ >= 900)
#endif

// Labels of 16 rows in shared memory. Only the first `inside` rows exist. Lane i has the error bound of row i.
__device__ __forceinline__ void find_labels(
    const VALUE *rows, int inside, float error, const uint4 *screen, const double *B, int k, int *found)
{
    int lane = threadIdx.x & 31, q = lane & 3, r = lane >> 2;
    Scores s = {}, rests = {};
    const VALUE *x = rows + row_of(r) * FEATURES + 4 * q;
    screen += r * QUARTER + q;
    #pragma unroll
    for (int j = 0; j < FEATURES; j += 16) {
        __align__(16) VALUE raw[2][4];
        read_four(x + j, raw[0]);
        read_four(x + j + 8 * FEATURES, raw[1]);
        score_some(raw, screen + j / 4, s, rests);
    }
    if (lane < 16 && lane >= inside) found[lane] = -1;
    decide(s, rests, rows, inside, error, B, k, found);
}

__device__ __forceinline__ void wait_for(unsigned barrier, unsigned phase) {
    unsigned done = 0;
    while (!done)
#if HOPPER
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
                     : "=r"(done) : "r"(barrier), "r"(phase) : "memory");
    __syncwarp();
}

// Arrive at a barrier. Every thread must call this, because it covers only the reads and writes of that thread.
__device__ __forceinline__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// Copy rows to shared memory asynchronously; the barrier completes when they have arrived. Called by a whole warp.
__device__ __forceinline__ void fetch(const VALUE *from, int count, VALUE *to, unsigned barrier) {
    unsigned bytes = count * FEATURES * sizeof(VALUE), there = __cvta_generic_to_shared(to), lane = threadIdx.x & 31;
#if HOPPER
    if (lane) return arrive(barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(there), "l"(from), "r"(bytes), "r"(barrier) : "memory");
#else
    for (unsigned at = 16 * lane; at < bytes; at += 512)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(there + at), "l"((const char *)from + at) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(barrier) : "memory");
#endif
}

// Score ROWS rows of one label and add them to the sums. Only the first `count` of them are used.
template <int ROWS> __device__ __forceinline__ void add_rows(
    const VALUE *tile, const unsigned char *members, int count, const double (&b)[SLICES],
    const double *weights, double (&sums)[SLICES], double *scores)
{
    int lane = threadIdx.x & 31, row[ROWS];
    double x[ROWS][SLICES], s[ROWS] = {}, v[ROWS];
    #pragma unroll
    for (int m = 0; m < ROWS; m++) {
        row[m] = members[m < count ? m : 0];
        v[m] = m && m >= count ? 0.0 : WEIGHTED ? weights[row[m]] : 1.0;
    }
    #pragma unroll
    for (int u = 0; u < SLICES; u++)
        #pragma unroll
        for (int m = 0; m < ROWS; m++) {
            bool there = 32 * u + 32 <= FEATURES || 32 * u + lane < FEATURES;
            x[m][u] = there ? wide(tile[row[m] * FEATURES + 32 * u + lane]) : 0.0;
            s[m] += x[m][u] * b[u];
            if (!BY_SCORE) sums[u] += v[m] * x[m][u];
        }
    int which = add_across_warp(s);
    if (lane % (32 / ROWS) == 0 && which < count) scores[members[which]] = s[0];
    if constexpr (BY_SCORE) {
        #pragma unroll
        for (int m = 0; m < ROWS; m++) v[m] *= fmax(__shfl_sync(ALL, s[0], 32 / ROWS * m), 0.0);
        #pragma unroll
        for (int u = 0; u < SLICES; u++)
            #pragma unroll
            for (int m = 0; m < ROWS; m++) sums[u] += v[m] * x[m][u];
    }
}

// Give every label one duty, and labels with large counts several. Adders get a mix of heavy and light duties. Writes
// for each duty its label (-1 for none), its part, and the number of parts of that label. Called by a whole warp.
// Requires k <= 64 and k <= DUTIES <= 64.
__device__ void share_labels(const double *counts, int k, int *label, int *part, int *parts, float *loads) {
    int lane = threadIdx.x & 31, number[2], first[2], before = 0;
    float load[2], total = 0.f;
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        int c = lane + 32 * h;
        load[h] = c >= k ? 0.f : counts ? (float)counts[c] : 1.f;
        total += load[h];
    }
    #pragma unroll
    for (int apart = 16; apart; apart >>= 1) total += __shfl_xor_sync(ALL, total, apart);
    #pragma unroll
    for (int h = 0; h < 2; h++) {
        int more = total > 0 ? (int)((DUTIES - k) * 0.999f * load[h] / total) : 0;
        number[h] = lane + 32 * h >= k ? 0 : 1 + more;
        int upto = number[h];
        #pragma unroll
        for (int apart = 1; apart < 32; apart <<= 1) {
            int other = __shfl_up_sync(ALL, upto, apart);
            if (lane >= apart) upto += other;
        }
        first[h] = before + upto - number[h];
        before += __shfl_sync(ALL, upto, 31);
    }
    for (int at = lane; at < DUTIES; at += 32) { label[at] = -1; loads[at] = -1.f; }
    __syncwarp();
    #pragma unroll
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < number[h]; i++) loads[first[h] + i] = load[h] / number[h];
    __syncwarp();
    #pragma unroll
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < number[h]; i++) {
            int at = first[h] + i, rank = 0;
            for (int other = 0; other < before; other++)
                rank += loads[other] > loads[at] || (loads[other] == loads[at] && other < at);
            int round = rank / ADDERS, adder = rank % ADDERS;
            int duty = round * ADDERS + (round % 2 ? ADDERS - 1 - adder : adder);
            label[duty] = lane + 32 * h;
            part[duty] = i;
            parts[duty] = number[h];
        }
}

// Cycles through the places in shared memory. `phase` is the parity of the number of times a place has been filled.
struct Place {
    int at = 0;
    unsigned phase = 0;
    __device__ __forceinline__ void next() { if (++at == PLACES) { at = 0; phase ^= 1; } }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) step_dense(
    const VALUE *X, int64 n,                  // IN (n, FEATURES)
    const float *norms,                       // IN (n,) ‖x‖
    const double *B, int k,                   // IN (k, COLUMNS), k <= 8 TILES, k <= DUTIES
    const double *counts,                     // IN (k,) rows of each label in the last step; null in the first
    const double *weights,                    // IN (n,), if WEIGHTED
    int tiles, int stretches,                 // IN tiles per stretch, and stretches per block
    int *labels, double *best,                // OUT (n,)
    int *owners, double *partial)             // OUT (DUTIES,) labels of the duties, (all stretches, DUTIES, FEATURES)
{
    extern __shared__ __align__(16) char shared[];
    VALUE *rows = (VALUE *)shared;                                     // (PLACES, ROOM)
    uint4 *screen = (uint4 *)(rows + PLACES * ROOM);                   // (8 TILES, PITCH / 4)
    __shared__ float spread[PITCH > DUTIES ? PITCH : DUTIES];          // d; before that, loads of the duties
    __shared__ int found[PLACES][TILE];                                // labels, -1 for no row
    __shared__ double scores[PLACES][TILE], weights_here[PLACES][WEIGHTED ? TILE : 1];
    __shared__ unsigned char members[ADDERS][TILE];                    // rows of the label of an adder
    __shared__ unsigned long long barriers[3][PLACES];
    __shared__ int label_of[DUTIES], part_of[DUTIES], parts_of[DUTIES];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    unsigned full = __cvta_generic_to_shared(barriers), labelled = full + 8 * PLACES, vacant = labelled + 8 * PLACES;
    int64 start = (int64)blockIdx.x * stretches * tiles * TILE, left = n - start;
    int inside = left < (int64)stretches * tiles * TILE ? (int)left : stretches * tiles * TILE;
    int number = (inside + TILE - 1) / TILE;
    if (threadIdx.x < 3 * PLACES) {
        unsigned warps = threadIdx.x < PLACES ? 1 : threadIdx.x < 2 * PLACES ? SCORERS : ADDERS;
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(full + 8 * threadIdx.x), "r"(32 * warps) : "memory");
    }
    // The padding after the rows is multiplied by 0, so it must not be NaN.
    for (int at = threadIdx.x; at < PLACES * ROOM * sizeof(VALUE) / 16; at += blockDim.x) ((uint4 *)shared)[at] = uint4();
    if (warp == WARPS - 1) {
        share_labels(counts, k, label_of, part_of, parts_of, spread);
        __syncwarp();
        if (blockIdx.x == 0) for (int at = lane; at < DUTIES; at += 32) owners[at] = label_of[at];
    }
    __syncthreads();
    make_screen(B, k, screen, spread);
#if HOPPER
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
#endif
    __syncthreads();
    Place place;
    if (warp < SCORERS) {
        float error = error_of(spread);
        norms += start + 16 * warp;
        weights += start + 16 * warp;
        for (int t = 0; t < number; t++, place.next()) {
            int left = inside - t * TILE - 16 * warp;
            bool mine = lane < 16 && lane < left;
            float norm = mine ? norms[t * TILE + lane] : 0.f;
            double weight = WEIGHTED && mine ? weights[t * TILE + lane] : 0.0;
            wait_for(full + 8 * place.at, place.phase);
            find_labels(rows + place.at * ROOM + 16 * warp * FEATURES, left, error * norm + TINY, screen, B, k,
                        found[place.at] + 16 * warp);
            if (WEIGHTED && lane < 16) weights_here[place.at][16 * warp + lane] = weight;
            arrive(labelled + 8 * place.at);
        }
        return;
    }
    if (warp == WARPS - 1) {
        X += start * FEATURES;
        labels += start;
        best += start;
        for (int t = 0; t < number + PLACES; t++, place.next()) {
            if (t >= PLACES) {                // wait until the adders have finished the last tile here
                wait_for(vacant + 8 * place.at, place.phase ^ 1);
                for (int i = lane; i < TILE; i += 32) {
                    int row = (t - PLACES) * TILE + i;
                    double score = scores[place.at][i];
                    if (row >= inside) continue;
                    labels[row] = found[place.at][i];
                    best[row] = score >= INFINITE_SCORE ? score : NEVER;
                }
            }
            if (t < number) {
                int count = inside - t * TILE;
                fetch(X + (size)t * TILE * FEATURES, count < TILE ? count : TILE, rows + place.at * ROOM, full + 8 * place.at);
            }
        }
        return;
    }
    int adder = warp - SCORERS, label[LABELS];
    unsigned mine[LABELS][2];                 // rows of a tile that the duty adds if they have its label
    double b[LABELS][SLICES], sums[LABELS][SLICES] = {};
    #pragma unroll
    for (int l = 0; l < LABELS; l++) {
        int duty = adder + l * ADDERS, c = label_of[duty];
        label[l] = c < 0 ? NOBODY : c;
        #pragma unroll
        for (int h = 0; h < 2; h++) mine[l][h] = __ballot_sync(ALL, c >= 0 && (lane + 32 * h) % parts_of[duty] == part_of[duty]);
        #pragma unroll
        for (int u = 0; u < SLICES; u++) {
            int j = lane + 32 * u;
            b[l][u] = c >= 0 && j < COLUMNS ? fmax(B[(size)c * COLUMNS + j], INFINITE) : 0.0;
        }
    }
    partial += ((size)blockIdx.x * stretches * DUTIES + adder) * FEATURES + lane;
    int until = tiles;                        // tiles until the stretch ends
    for (int t = 0; t < number; t++, place.next()) {
        wait_for(labelled + 8 * place.at, place.phase);
        const VALUE *tile = rows + place.at * ROOM;
        bool last = --until == 0 || t + 1 == number;
        #pragma unroll
        for (int l = 0; l < LABELS; l++) {
            int count = 0;
            #pragma unroll
            for (int h = 0; h < (TILE + 31) / 32; h++) {
                int i = lane + 32 * h;
                bool same = (TILE % 32 == 0 || i < TILE) && found[place.at][i] == label[l];
                unsigned all = __ballot_sync(ALL, same) & mine[l][h];
                if (all >> lane & 1) members[adder][count + __popc(all & (1u << lane) - 1)] = i;
                count += __popc(all);
            }
            __syncwarp();
            int i = 0;
            for (; count - i > 2; i += AT_ONCE)
                add_rows<AT_ONCE>(tile, members[adder] + i, count - i, b[l], weights_here[place.at], sums[l], scores[place.at]);
            if (i < count)
                add_rows<2>(tile, members[adder] + i, count - i, b[l], weights_here[place.at], sums[l], scores[place.at]);
            __syncwarp();
            if (!last) continue;
            #pragma unroll
            for (int u = 0; u < SLICES; u++) {
                if (lane + 32 * u < FEATURES) partial[(size)l * ADDERS * FEATURES + 32 * u] = sums[l][u];
                sums[l][u] = 0.0;
            }
        }
        arrive(vacant + 8 * place.at);
        if (!last) continue;
        partial += (size)DUTIES * FEATURES;
        until = tiles;
    }
}
