// Sums of the rows of an array by label, and the scores of their templates if they are asked for.
//
// A block has a part of the rows. It sorts up to BATCH of them by label, and each of its warps takes the same number of
// sorted rows. So the time does not depend on how many rows a label has. A warp has the sums of one label in registers
// and writes them when the label ends. If the rows of a label are shared by several warps, the first of them writes its
// sums, and those of the others are added afterwards, in the order of the warps.
//
// Rows travel through a ring in shared memory, DEPTH groups of ROWS rows for each warp.
//
// Macros set by the host, besides VALUE:
//   QUADS               groups of four features that a lane has: a block has 128 QUADS features
//   ROWS                rows that a warp adds at once: 1, 2 or 4
//   ALIGNED             whether each row begins at a multiple of 16 bytes
//   WEIGHTED            whether the rows have weights
//   SCORED, BY_SCORE    whether scores are computed, and whether they are factors of the weights

#define WARPS 8
#define DEPTH 3
#define BATCH 4096
#define SHARE (BATCH / WARPS)                         // rows that a warp sorts
#define WIDTH (128 * QUADS)

// Copy `count` entries from a row to shared memory asynchronously. Called by a whole warp.
__device__ __forceinline__ void fetch(const VALUE *from, VALUE *to, int count) {
    unsigned there = __cvta_generic_to_shared(to);
    const int each = ALIGNED ? 16 / sizeof(VALUE) : 1;
    for (int at = each * (threadIdx.x & 31); at < count; at += 32 * each) {
        unsigned place = there + at * (unsigned)sizeof(VALUE);
        if (ALIGNED) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(place), "l"(from + at) : "memory");
        else if (sizeof(VALUE) == 8) asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(place), "l"(from + at) : "memory");
        else asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(place), "l"(from + at) : "memory");
    }
}

__device__ __forceinline__ void fetch_weight(const double *from, double *to) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

// The order of rows by label, stable, and where each label starts in it. Rows of labels below 0, or from `count` on,
// are left out. Called by a whole block.
__device__ __forceinline__ void sort_rows(
    const int *labels, int rows, int first, int count, unsigned short *order, int *starts, int *places)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, label[SHARE / 32];
    #pragma unroll
    for (int i = 0; i < SHARE / 32; i++) {
        int row = warp * SHARE + 32 * i + lane, c = row < rows ? labels[row] - first : -1;
        label[i] = c >= 0 && c < count ? c : -1;
    }
    int *own = places + warp * count;                 // number of rows, later the next place, of each label
    for (int c = lane; c < count; c += 32) own[c] = 0;
    __syncwarp();
    #pragma unroll
    for (int i = 0; i < SHARE / 32; i++) {
        unsigned same = __match_any_sync(ALL, label[i]);
        if (label[i] >= 0 && __ffs(same) - 1 == lane) own[label[i]] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    if (warp == 0) {
        int before = 0;
        for (int c0 = 0; c0 < count; c0 += 32) {
            int c = c0 + lane, number = 0;
            for (int w = 0; w < WARPS && c < count; w++) number += places[w * count + c];
            int upto = number;
            #pragma unroll
            for (int apart = 1; apart < 32; apart <<= 1) {
                int other = __shfl_up_sync(ALL, upto, apart);
                if (lane >= apart) upto += other;
            }
            int at = before + upto - number;
            if (c < count) starts[c] = at;
            for (int w = 0; w < WARPS && c < count; w++) {
                int here = places[w * count + c];
                places[w * count + c] = at;
                at += here;
            }
            before += __shfl_sync(ALL, upto, 31);
        }
        if (lane == 0) starts[count] = before;
    }
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < SHARE / 32; i++) {
        unsigned same = __match_any_sync(ALL, label[i]);
        int place = label[i] >= 0 ? own[label[i]] : 0;
        __syncwarp();
        if (label[i] >= 0) {
            order[place + __popc(same & (1u << lane) - 1)] = warp * SHARE + 32 * i + lane;
            if (__ffs(same) - 1 == lane) own[label[i]] = place + __popc(same);
        }
        __syncwarp();
    }
    __syncthreads();
}

// Add `count` of ROWS rows to the sums of their label, and write their scores.
__device__ __forceinline__ void add_rows(
    const VALUE *rows, int pitch, const double *weights, int count, int features,
    const double (&b)[QUADS][4], double (&sums)[QUADS][4], double *best, const unsigned short *order)
{
    int lane = threadIdx.x & 31;
    double v[ROWS], s[ROWS] = {};
    #pragma unroll
    for (int m = 0; m < ROWS; m++) v[m] = m && m >= count ? 0.0 : WEIGHTED ? weights[m] : 1.0;
    auto for_each_entry = [&](auto use) {
        #pragma unroll
        for (int u = 0; u < QUADS; u++) {
            int j = 4 * (lane + 32 * u);
            if (j >= features) continue;
            #pragma unroll
            for (int m = 0; m < ROWS; m++) {
                __align__(16) VALUE x[4];
                read_four(rows + (m < count ? m : 0) * pitch + j, x);
                #pragma unroll
                for (int f = 0; f < 4; f++) use(m, u, f, wide(x[f]));
            }
        }
    };
    for_each_entry([&](int m, int u, int f, double x) {
        if (SCORED) s[m] += x * b[u][f];
        if (!BY_SCORE) sums[u][f] += v[m] * x;
    });
    if (!SCORED) return;
    int which = add_across_warp(s);
    if (lane % (32 / ROWS) == 0 && which < count) best[order[which]] = s[0] >= INFINITE_SCORE ? s[0] : NEVER;
    if (!BY_SCORE) return;
    #pragma unroll
    for (int m = 0; m < ROWS; m++) v[m] *= fmax(__shfl_sync(ALL, s[0], 32 / ROWS * m), 0.0);
    for_each_entry([&](int m, int u, int f, double x) { sums[u][f] += v[m] * x; });
}

// partial_tcj = Σ w_i x_ij over the rows of part t whose label is first + c.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) sum_dense(
    const VALUE *X, int p, int64 n,              // IN (n, p)
    const int *labels, const double *weights,    // IN (n,); weights if WEIGHTED
    int first, int count, int64 rows,            // IN labels first to first + count; rows of a part
    const double *B, int columns,                // IN (k, columns) if SCORED, columns <= p <= WIDTH
    double *best,                                // OUT (n,) if SCORED
    double *partial)                             // OUT (parts, count, p)
{
    extern __shared__ __align__(16) char shared[];
    __shared__ int carried[WARPS];               // label whose sums a warp leaves to be added, -1 for none
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, j0 = blockIdx.y * WIDTH;
    int features = p - j0 < WIDTH ? p - j0 : WIDTH, pitch = (features + 3) / 4 * 4;
    VALUE *ring = (VALUE *)shared + warp * DEPTH * ROWS * pitch;
    double *extra = (double *)((VALUE *)shared + WARPS * DEPTH * ROWS * pitch);        // (WARPS, pitch)
    double *factors = extra + WARPS * pitch + warp * DEPTH * ROWS;                     // weights of the rows of the ring
    int *starts = (int *)(extra + WARPS * pitch + WARPS * DEPTH * ROWS);               // (count + 1,)
    int *places = starts + count + 1;                                                  // (WARPS, count)
    unsigned short *order = (unsigned short *)(places + WARPS * count);                // (BATCH,)
    int64 start = blockIdx.x * rows, stop = start + rows < n ? start + rows : n;
    partial += (size)blockIdx.x * count * p + j0;
    X += j0;
    bool again = false;                          // whether the sums of an earlier batch are in `partial`
    // Batches of one size, and not a small one at the end.
    int64 batches = (stop - start + BATCH - 1) / BATCH, size_of_one = batches ? (stop - start + batches - 1) / batches : 0;
    for (; start < stop; start += size_of_one, again = true) {
        sort_rows(labels + start, (int)(stop - start < size_of_one ? stop - start : size_of_one), first, count, order, starts, places);
        int total = starts[count], from = total * warp / WARPS, to = total * (warp + 1) / WARPS;
        int groups = (to - from + ROWS - 1) / ROWS;

        auto fetch_group = [&](int group) {
            #pragma unroll
            for (int m = 0; m < ROWS; m++) {
                int at = from + group * ROWS + m, slot = group % DEPTH * ROWS + m;
                if (at >= to) continue;
                int64 row = start + order[at];
                fetch(X + row * p, ring + slot * pitch, features);
                if (WEIGHTED && lane == 0) fetch_weight(weights + row, factors + slot);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
        };
        #pragma unroll
        for (int group = 0; group < DEPTH - 1; group++) fetch_group(group);

        int c = 0;                               // label of the rows at hand, and where it ends
        while (c < count - 1 && starts[c + 1] <= from) c++;
        int end = from < to ? min(starts[c + 1], to) : to;
        bool continued = from < to && starts[c] < from;
        if (lane == 0) carried[warp] = continued ? c : -1;
        double sums[QUADS][4] = {}, b[QUADS][4] = {};
        auto begin_label = [&]() {
            #pragma unroll
            for (int u = 0; u < QUADS; u++)
                #pragma unroll
                for (int f = 0; f < 4; f++) {
                    int j = 4 * (lane + 32 * u) + f;
                    sums[u][f] = 0.0;
                    if (SCORED) b[u][f] = j < columns ? fmax(B[(size)(first + c) * columns + j], INFINITE) : 0.0;
                }
        };
        auto end_label = [&]() {
            double *to_add = continued ? extra + warp * pitch : partial + (size)c * p;
            #pragma unroll
            for (int u = 0; u < QUADS; u++)
                #pragma unroll
                for (int f = 0; f < 4; f++) {
                    int j = 4 * (lane + 32 * u) + f;
                    if (j < features) to_add[j] = again && !continued ? to_add[j] + sums[u][f] : sums[u][f];
                }
            continued = false;
        };
        begin_label();
        for (int group = 0; group < groups; group++) {
            fetch_group(group + DEPTH - 1);
            asm volatile("cp.async.wait_group %0;" :: "n"(DEPTH - 1) : "memory");
            __syncwarp();
            int begin = from + group * ROWS, last = min(begin + ROWS, to), i = begin;
            while (i < last) {
                if (i == end) {
                    end_label();
                    while (starts[++c + 1] <= i) {}
                    end = min(starts[c + 1], to);
                    begin_label();
                }
                int upto = min(end, last), slot = group % DEPTH * ROWS + i - begin;
                add_rows(ring + slot * pitch, pitch, factors + slot, upto - i, features, b, sums, best + start, order + i);
                i = upto;
            }
            __syncwarp();
        }
        if (from < to) end_label();
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        if (!again)
            for (int empty = warp; empty < count; empty += WARPS)
                if (starts[empty] == starts[empty + 1])
                    for (int j = lane; j < features; j += 32) partial[(size)empty * p + j] = 0.0;
        __syncthreads();
        for (int j = threadIdx.x; j < features; j += blockDim.x)
            for (int w = 1; w < WARPS;) {
                int label = carried[w];
                if (label < 0) { w++; continue; }
                double s = partial[(size)label * p + j];
                for (; w < WARPS && carried[w] == label; w++) s += extra[w * pitch + j];
                partial[(size)label * p + j] = s;
            }
        __syncthreads();
    }
}
