// Kernels of the GPU backend, except for that in step.cu.
//
// Macros set by the host, besides VALUE:
//   TEAM             threads that share a sparse row: 8, 16 or 32
//   LANES, PARTS     threads of a team that share an entry, and 16-byte parts of the table that each of them reads
//   TILES, ROWTILES  tiles of 8 templates, and of 8 rows (an even number), that a warp multiplies at once

__device__ __forceinline__ void publish(int64 i, double best, int winner, int *labels, double *scores) {
    // If all templates cost infinity, they tie.
    bool hopeless = !(best >= INFINITE_SCORE);
    labels[i] = hopeless ? 0 : winner;
    scores[i] = hopeless ? NEVER : best;
}

// BT = Bᵀ, and the table of the screen. Each block handles 32 features.
//
//   b_kj = m_j + s_j q_kj + error,   |error| <= s_j / 2,   q_kj an integer of at most 16 bits
//
// m_j is the same for all templates and does not change the argmax. A line of the table is s_j as a float, then q_kj +
// 2^15. If a template is infinite, s_j is infinite, and every template passes the screen.
extern "C" __global__ void template_table(
    const double *B,            // IN (k, p)
    int k, int p,
    int chunks,                 // IN 16-byte parts of a line of the table; 0 for none
    double *BT,                 // OUT (p, k)
    unsigned short *table)      // OUT (p, 8 chunks)
{
    __shared__ double tile[32][33], low[8][32], high[8][32], middle[32];
    __shared__ float scale[32];
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5, first = blockIdx.x * 32, j = first + tx;
    if (chunks) {
        double lo = -NEVER, hi = NEVER;
        if (j < p)
            for (int c = ty; c < k; c += 8) {
                double b = B[(size)c * p + j];
                lo = fmin(lo, b);
                hi = fmax(hi, b);
            }
        low[ty][tx] = lo;
        high[ty][tx] = hi;
        __syncthreads();
        if (ty == 0) {
            for (int t = 1; t < 8; t++) { lo = fmin(lo, low[t][tx]); hi = fmax(hi, high[t][tx]); }
            double range = hi - lo;
            middle[tx] = lo + 0.5 * range;
            scale[tx] = range < 1e30 ? fmaxf((float)(range / 65534.0) * 1.000001f, 1.2e-38f) : __int_as_float(0x7f800000);
            if (j < p) *(float *)(table + (size)j * chunks * 8) = scale[tx];
        }
        __syncthreads();
    }
    for (int c0 = 0; c0 < k; c0 += 32) {
        for (int r = ty; r < 32; r += 8)
            tile[r][tx] = (c0 + r < k && j < p) ? fmax(B[(size)(c0 + r) * p + j], INFINITE) : 0.0;
        __syncthreads();
        for (int r = ty; r < 32; r += 8)
            if (c0 + tx < k && first + r < p) {
                double b = tile[tx][r];
                BT[(size)(first + r) * k + c0 + tx] = b;
                if (chunks) {
                    double q = rint((b - middle[r]) / (double)scale[r]);
                    q = fmin(fmax(q, -32767.0), 32767.0);  // infinite scale: clamps NaN; q is then not used
                    table[(size)(first + r) * chunks * 8 + 2 + c0 + tx] = (unsigned short)((int)q + 32768);
                }
            }
        __syncthreads();
    }
}

#ifdef VALUE

// score = Σ_j x_j b_cj over the entries of a row, with a stride of `step`.
__device__ __forceinline__ double score_of(
    int64 begin, int64 end, int step, const int *indices, const VALUE *data, const double *BT, int k, int c)
{
    double s = 0.0;
    for (int64 e = begin; e < end; e += 4 * step) {
        #pragma unroll
        for (int u = 0; u < 4; u++) {
            int64 at = e + u * step;
            if (at < end) s += (double)data[at] * BT[(size)indices[at] * k + c];
        }
    }
    return s;
}

#if !defined(LANES) && !defined(TILES)

// A warp computes all scores of a row. Groups of `lanes` threads (a power of 2) handle that number of templates, and
// the groups share the entries. Afterwards, thread own_lane of every group has the score of template c0 + own_lane.
#define ROW_OF_A_WARP \
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) >> 5; \
    if (i >= n) return; \
    int lane = threadIdx.x & 31, own_lane = lane & (lanes - 1), group = lane / lanes, groups = 32 / lanes; \
    int64 begin = indptr[i], end = indptr[i + 1];

#define SCORE_OF_TEMPLATE \
    int c = c0 + own_lane; \
    double s = c < k ? score_of(begin + group, end, groups, indices, data, BT, k, c) : 0.0; \
    for (int apart = lanes; apart < 32; apart <<= 1) s += __shfl_xor_sync(ALL, s, apart);

// label_i = argmax_k <x_i, b_k>, best_i = max_k <x_i, b_k>, in float64 throughout.
extern "C" __global__ void best_template_csr(
    const int64 *indptr, const int *indices, const VALUE *data,   // IN rows
    const double *BT, int k, int64 n, int lanes,                  // IN
    int *labels, double *scores)                                  // OUT (n,)
{
    ROW_OF_A_WARP
    double best = NEVER;
    int winner = NOBODY;
    for (int c0 = 0; c0 < k; c0 += lanes) {
        SCORE_OF_TEMPLATE
        if (c < k) keep_better(best, winner, s, c);
    }
    for (int apart = lanes / 2; apart; apart >>= 1)
        keep_better(best, winner, __shfl_xor_sync(ALL, best, apart), __shfl_xor_sync(ALL, winner, apart));
    if (lane == 0) publish(i, best, winner, labels, scores);
}

// Score of the template of each row's label, and the largest of the others.
extern "C" __global__ void own_and_next_csr(
    const int64 *indptr, const int *indices, const VALUE *data,   // IN rows
    const double *BT, int k, int64 n, int lanes,                  // IN
    const int *labels,                                            // IN (n,)
    double *own, double *following)                               // OUT (n,)
{
    ROW_OF_A_WARP
    double mine = NEVER, best = NEVER;
    int label = labels[i];
    for (int c0 = 0; c0 < k; c0 += lanes) {
        SCORE_OF_TEMPLATE
        if (c == label) mine = s;
        else if (c < k) best = fmax(best, s);
    }
    for (int apart = lanes / 2; apart; apart >>= 1) {
        best = fmax(best, __shfl_xor_sync(ALL, best, apart));
        mine = fmax(mine, __shfl_xor_sync(ALL, mine, apart));
    }
    if (lane == 0) {
        own[i] = mine >= INFINITE_SCORE ? mine : NEVER;
        following[i] = best >= INFINITE_SCORE ? best : NEVER;
    }
}

// All scores, for calls with few rows.
extern "C" __global__ void scores_csr(
    const int64 *indptr, const int *indices, const VALUE *data,   // IN rows
    const double *BT, int k, int64 n, int lanes,                  // IN
    double *scores)                                               // OUT (n, k)
{
    ROW_OF_A_WARP
    for (int c0 = 0; c0 < k; c0 += lanes) {
        SCORE_OF_TEMPLATE
        if (group == 0 && c < k) scores[i * k + c] = s >= INFINITE_SCORE ? s : NEVER;
    }
}

// Smallest and largest stored entry of each row; 0 if none is stored, NaN if an entry is NaN.
extern "C" __global__ void extremes_csr(
    const int64 *indptr, const VALUE *data, int64 n,   // IN
    double *low, double *high)                         // OUT (n,)
{
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (i >= n) return;
    int lane = threadIdx.x & 31;
    int64 begin = indptr[i], end = indptr[i + 1];
    double lo = -NEVER, hi = NEVER;
    int bad = 0;
    for (int64 e = begin + lane; e < end; e += 32) {
        double x = (double)data[e];
        bad |= x != x;
        lo = fmin(lo, x);
        hi = fmax(hi, x);
    }
    bad = __any_sync(ALL, bad);
    for (int apart = 16; apart; apart >>= 1) {
        lo = fmin(lo, __shfl_xor_sync(ALL, lo, apart));
        hi = fmax(hi, __shfl_xor_sync(ALL, hi, apart));
    }
    if (lane == 0) {
        double nan = __longlong_as_double(0x7ff8000000000000LL);
        low[i] = begin == end ? 0.0 : bad ? nan : lo;
        high[i] = begin == end ? 0.0 : bad ? nan : hi;
    }
}

// Σ of the entries of each row. `first` is the entry that data starts with.
extern "C" __global__ void row_sums(
    const int64 *indptr, const VALUE *data, int64 first, int64 n,   // IN
    double *out)                                                    // OUT (n,)
{
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (i >= n) return;
    int lane = threadIdx.x & 31;
    double s = 0.0;
    for (int64 e = indptr[i] - first + lane; e < indptr[i + 1] - first; e += 32) s += (double)data[e];
    for (int apart = 16; apart; apart >>= 1) s += __shfl_xor_sync(ALL, s, apart);
    if (lane == 0) out[i] = s;
}

// f(t + x) − f(t) with f(t) = t log t, as in kernels/hartigan.py.
__device__ __forceinline__ double rise(double t, double x) {
    if (t == 0.0) return x * log(x);
    double ratio = x / t;
    return t * (ratio < -NEVER ? log1p(ratio) : log(x) - log(t)) + x * log(t + x);
}

// steps_x = rise(S, x) for x from 1 to `most`.
extern "C" __global__ void entropy_steps(
    const double *S, int64 count, int most,     // IN (count,)
    double *steps)                              // OUT (most, count)
{
    int64 at = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count) return;
    for (int x = 1; x <= most; x++) steps[(x - 1) * count + at] = rise(S[at], x);
}

// rises_ic = Σ_j rise(S_jc, w_i x_ij); for the row's own cluster, with S without the row. A warp per row: groups of
// `lanes` threads handle that number of clusters, and the groups share the entries.
extern "C" __global__ void entropy_rises(
    const int64 *indptr, const int *indices,    // IN rows; null for an array
    const VALUE *data, int pitch, int p,        // IN entries; columns of an array, and its features
    const double *S,                            // IN (p, k)
    const double *steps, int most,              // IN (most, p, k) from entropy_steps
    int k, int64 n, int lanes,
    const int *labels, const double *weights,   // IN (n,)
    double *rises)                              // OUT (n, k)
{
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (i >= n) return;
    int lane = threadIdx.x & 31, own_lane = lane & (lanes - 1), group = lane / lanes, groups = 32 / lanes;
    int64 begin = indptr ? indptr[i] : i * pitch, end = indptr ? indptr[i + 1] : begin + p;
    int own = labels[i];
    double w = weights[i];
    for (int c0 = 0; c0 < k; c0 += lanes) {
        int c = c0 + own_lane;
        double s = 0.0;
        const int ahead = 4;                    // entries that a thread reads at once
        for (int64 e = begin + group; e < end && c < k; e += ahead * groups) {
            double x[ahead], t[ahead];
            bool tabled[ahead];
            #pragma unroll
            for (int u = 0; u < ahead; u++) {
                int64 entry = e + u * groups;
                bool inside = entry < end;
                x[u] = inside ? (double)data[entry] * w : 0.0;
                size at = (size)(!inside ? 0 : indptr ? indices[entry] : (int)(entry - begin)) * k + c;
                tabled[u] = c != own && x[u] >= 1.0 && x[u] <= most && x[u] == (double)(int)x[u];
                t[u] = tabled[u] ? steps[((int)x[u] - 1) * (size)p * k + at] : S[at];
            }
            #pragma unroll
            for (int u = 0; u < ahead; u++) {
                if (x[u] == 0.0) continue;
                s += tabled[u] ? t[u] : rise(c == own ? fmax(t[u] - x[u], 0.0) : t[u], x[u]);
            }
        }
        for (int apart = lanes; apart < 32; apart <<= 1) s += __shfl_xor_sync(ALL, s, apart);
        if (group == 0 && c < k) rises[i * k + c] = s;
    }
}

// Entries in another order: entry e of the result is entry order_e. A thread handles 4 entries.
extern "C" __global__ void reorder(
    const int64 *order, int64 entries,            // IN (entries,)
    const int *row_of, const VALUE *data,         // IN (entries,)
    int *rows, VALUE *values)                     // OUT (entries,)
{
    int64 first = (int64)blockIdx.x * blockDim.x * 4 + threadIdx.x, from[4];
    int row[4];
    VALUE value[4];
    #pragma unroll
    for (int u = 0; u < 4; u++) {
        int64 e = first + u * blockDim.x;
        from[u] = e < entries ? order[e] : 0;
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
        row[u] = row_of[from[u]];
        value[u] = data[from[u]];
    }
    #pragma unroll
    for (int u = 0; u < 4; u++) {
        int64 e = first + u * blockDim.x;
        if (e < entries) { rows[e] = row[u]; values[e] = value[u]; }
    }
}

// partial_uc = Σ w_i x over the entries of unit u whose row i has label first + c.
//
// A unit is a range of entries of one feature, for one warp. Each thread has a separate sum for each label, so threads
// share nothing while adding: thread t adds entries t, t + 32, ... and the 32 sums are added at the end.
extern "C" __global__ void sum_units(
    const int64 *starts, const int64 *stops, int64 units,   // IN (units,) entries of each unit
    const int *rows,                                        // IN (nnz,) row of each entry
    const VALUE *data,                                      // IN (nnz,)
    const int *labels, const double *weights,               // IN (n,); weights is null if all are one
    int first, int count,                                   // IN labels first to first + count
    double *partial)                                        // OUT (units, count)
{
    extern __shared__ double bins[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int64 u = (int64)blockIdx.x * (blockDim.x >> 5) + warp;
    if (u >= units) return;
    double *counts = bins + (size)warp * count * 32;
    for (int c = 0; c < count; c++) counts[c * 32 + lane] = 0.0;
    int64 stop = stops[u];
    for (int64 e = starts[u] + lane; e < stop; e += 32 * 8) {
        int row[8], label[8];
        double x[8];
        #pragma unroll
        for (int t = 0; t < 8; t++) {  // adds zeros past the end: faster than skipping loads
            bool inside = e + 32 * t < stop;
            int64 at = inside ? e + 32 * t : stop - 1;
            row[t] = rows[at];
            x[t] = inside ? (double)data[at] : 0.0;
        }
        #pragma unroll
        for (int t = 0; t < 8; t++) {
            label[t] = labels[row[t]] - first;
            if (weights) x[t] *= weights[row[t]];
        }
        #pragma unroll
        for (int t = 0; t < 8; t++)
            if (label[t] >= 0 && label[t] < count) counts[label[t] * 32 + lane] += x[t];
    }
    __syncwarp();
    for (int c = lane; c < count; c += 32) {
        double s = 0.0;
        for (int t = 0; t < 32; t++) s += counts[c * 32 + ((t + lane) & 31)];
        partial[u * count + c] = s;
    }
}

#endif  // neither LANES nor TILES

#ifdef LANES

// label_i = argmax_k <x_i, b_k>: a screen in 16 bits, then float64 scores of the templates that pass, usually one.
//
//   screened_k = Σ_j (x_j s_j) q_kj,   |screened_k + Σ_j x_j m_j - <x, b_k>| <= bound
//   bound      = Σ_j |x_j| s_j · (1/2 + 2^15 (m + 4) 2^-24)
//
// The second term bounds the float32 rounding error in sums of m entries. A template can only win if its screened score
// is within 2 bounds of the largest, so the label is the same as with float64 scores.
#define GROUPS (TEAM / LANES)
#define AHEAD 4

extern "C" __global__ void best_template_screened(
    const int64 *indptr, const int *indices, const VALUE *data,   // IN rows
    const double *BT, const uint4 *table, int k, int chunks,      // IN templates
    int64 n,
    int *labels, double *scores)                                  // OUT (n,)
{
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) / TEAM;
    if (i >= n) return;
    int lane = threadIdx.x & (TEAM - 1), own_lane = lane & (LANES - 1), group = lane / LANES;
    int leader = (threadIdx.x & 31) & ~(LANES - 1);
    unsigned team = TEAM == 32 ? ALL : ((1u << (TEAM & 31)) - 1) << ((threadIdx.x & 31) & ~(TEAM - 1));
    int64 begin = indptr[i], end = indptr[i + 1];

    float sums[PARTS][8] = {}, size_of_row = 0.0f;
    for (int64 e = begin; e < end; e += GROUPS * AHEAD) {
        float x[AHEAD];
        uint4 line[AHEAD][PARTS];
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            int64 at = e + u * GROUPS + group;
            int j = at < end ? indices[at] : 0;
            x[u] = at < end ? (float)data[at] : 0.0f;
            // An entry too small for a float enlarges the bound instead.
            if (at < end && x[u] == 0.0f && data[at] != (VALUE)0) x[u] = 1e-30f;
            #pragma unroll
            for (int part = 0; part < PARTS; part++) {
                int chunk = own_lane + part * LANES;
                line[u][part] = make_uint4(0, 0, 0, 0);
                if (at < end && chunk < chunks) line[u][part] = table[(size)j * chunks + chunk];
            }
        }
        #pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            float s = __shfl_sync(team, __uint_as_float(line[u][0].x), leader);
            float xs = x[u] * s;
            size_of_row += fabsf(xs);
            #pragma unroll
            for (int part = 0; part < PARTS; part++) {
                unsigned words[4] = {line[u][part].x, line[u][part].y, line[u][part].z, line[u][part].w};
                #pragma unroll
                for (int w = 0; w < 4; w++) {
                    // 2^23 + q + 2^15 as a float, assembled from bytes
                    float a = __uint_as_float(__byte_perm(words[w], 0x4B000000u, 0x7410)) - 8421376.0f;
                    float b = __uint_as_float(__byte_perm(words[w], 0x4B000000u, 0x7432)) - 8421376.0f;
                    sums[part][2 * w] = fmaf(xs, a, sums[part][2 * w]);
                    sums[part][2 * w + 1] = fmaf(xs, b, sums[part][2 * w + 1]);
                }
            }
        }
    }
    #pragma unroll
    for (int apart = LANES; apart < TEAM; apart <<= 1) {
        size_of_row += __shfl_xor_sync(team, size_of_row, apart);
        #pragma unroll
        for (int part = 0; part < PARTS; part++)
            #pragma unroll
            for (int v = 0; v < 8; v++) sums[part][v] += __shfl_xor_sync(team, sums[part][v], apart);
    }

    // Slot v of chunk t is template 8 t + v - 2: the first two hold the scale.
    float most = __int_as_float(0xff800000);
    #pragma unroll
    for (int part = 0; part < PARTS; part++)
        #pragma unroll
        for (int v = 0; v < 8; v++) {
            int c = 8 * (own_lane + part * LANES) + v - 2;
            if (c >= 0 && c < k) most = fmaxf(most, sums[part][v]);
        }
    #pragma unroll
    for (int apart = LANES / 2; apart; apart >>= 1) most = fmaxf(most, __shfl_xor_sync(team, most, apart));
    float chain = (float)((end - begin) / GROUPS + 16);
    float bound = 1.01f * size_of_row * (0.5f + chain * 0.001953125f) + 1e-30f;
    float enough = most - 2.02f * bound;

    // The templates that pass, the lowest index first. The comparisons let NaN pass.
    double best = NEVER;
    int winner = NOBODY, last = -1;
    while (true) {
        int next = NOBODY;
        #pragma unroll
        for (int part = PARTS - 1; part >= 0; part--)
            #pragma unroll
            for (int v = 7; v >= 0; v--) {
                int c = 8 * (own_lane + part * LANES) + v - 2;
                if (c > last && c < k && !(sums[part][v] < enough)) next = c;
            }
        #pragma unroll
        for (int apart = LANES / 2; apart; apart >>= 1) {
            int other = __shfl_xor_sync(team, next, apart);
            next = other < next ? other : next;
        }
        next = __shfl_sync(team, next, (threadIdx.x & 31) & ~(TEAM - 1));
        if (next == NOBODY) break;
        double s = score_of(begin + lane, end, TEAM, indices, data, BT, k, next);
        #pragma unroll
        for (int apart = 1; apart < TEAM; apart <<= 1) s += __shfl_xor_sync(team, s, apart);
        if (s > best || winner == NOBODY) { best = s; winner = next; }
        last = next;
    }
    if (lane == 0) publish(i, best, winner, labels, scores);
}

#endif  // LANES

#ifdef TILES

// Scores of dense rows on the tensor cores, in float64.
//
// Each warp has ROWTILES · 8 rows and TILES · 8 templates. A thread reads 4 features of a row at once. The order of the
// features in a product does not matter, as long as it is the same for rows and templates.
//   mode 0: labels, best    (updates the results for templates before `first` if first > 0)
//   mode 1: own, following  (likewise)
//   mode 2: all scores (n, k)
__device__ __forceinline__ void four(const VALUE *x, int left, bool whole, VALUE (&out)[4]) {
    if (whole && left >= 4) {
        read_four(x, out);
    } else {
        #pragma unroll
        for (int t = 0; t < 4; t++) out[t] = t < left ? x[t] : (VALUE)0;
    }
}

// sums += products of 16 rows (x and y of each thread), 16 features and 8 templates.
__device__ __forceinline__ void multiply(
    double (&s)[2], double (&t)[2], const double (&x)[4], const double (&y)[4], const double *b)
{
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(s[0]), "+d"(s[1]), "+d"(t[0]), "+d"(t[1])
        : "d"(x[0]), "d"(y[0]), "d"(x[1]), "d"(y[1]), "d"(x[2]), "d"(y[2]), "d"(x[3]), "d"(y[3]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
#else
    #pragma unroll
    for (int f = 0; f < 4; f++) {
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(s[0]), "+d"(s[1]) : "d"(x[f]), "d"(b[f]));
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(t[0]), "+d"(t[1]) : "d"(y[f]), "d"(b[f]));
    }
#endif
}

// Templates first to first + 8 TILES, features j0 to j0 + width, as the warps read them.
__device__ __forceinline__ void load_templates(
    const double *B, int k, int columns, int first, int j0, int width, double *templates)
{
    for (int c = threadIdx.x >> 5; c < 8 * TILES; c += blockDim.x >> 5)
        for (int j = threadIdx.x & 31; j < width; j += 32) {
            bool inside = first + c < k && j0 + j < columns;
            templates[c * (width + 1) + j] = inside ? fmax(B[(size)(first + c) * columns + j0 + j], INFINITE) : 0.0;
        }
}

// sums += products of the rows row0 ... of a warp, features j0 to j0 + width, and the templates in shared memory.
__device__ __forceinline__ void score_rows(
    const VALUE *X, int64 n, int p, int64 row0, const double *templates, int j0, int width,
    double (&sums)[ROWTILES][TILES][2])
{
    int lane = threadIdx.x & 31, q = lane & 3, r = lane >> 2;
    bool whole = p % 4 == 0;
    int stop = p - j0 < width ? p - j0 : width;
    __align__(16) VALUE ahead[ROWTILES][4];  // not converted yet: that would wait for the loads
    #pragma unroll
    for (int m = 0; m < ROWTILES; m++) {
        int64 row = row0 + m * 8 + r;
        four(X + (row < n ? row : n - 1) * p + j0 + 4 * q, stop - 4 * q, whole, ahead[m]);
    }
    for (int j = 0; j < stop; j += 16) {
        double x[ROWTILES][4];
        #pragma unroll
        for (int m = 0; m < ROWTILES; m++) {
            #pragma unroll
            for (int t = 0; t < 4; t++) x[m][t] = (double)ahead[m][t];
            int64 row = row0 + m * 8 + r;
            four(X + (row < n ? row : n - 1) * p + j0 + j + 16 + 4 * q, stop - j - 16 - 4 * q, whole, ahead[m]);
        }
        #pragma unroll
        for (int c = 0; c < TILES; c++) {
            const double *b = templates + (8 * c + r) * (width + 1) + j + 4 * q;
            #pragma unroll
            for (int m = 0; m < ROWTILES; m += 2) multiply(sums[m][c], sums[m + 1][c], x[m], x[m + 1], b);
        }
    }
}

// The score of a row's own template, and the best of the others. All four threads of the row get both.
__device__ __forceinline__ void best_of_row(
    const double (&sums)[TILES][2], int first, int k, int label, double &mine, double &top, int &winner)
{
    int q = threadIdx.x & 3;
    mine = top = NEVER;
    winner = NOBODY;
    #pragma unroll
    for (int c = 0; c < TILES; c++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            int at = first + 8 * c + 2 * q + h;
            if (at >= k) continue;
            if (at == label) mine = sums[c][h];
            else keep_better(top, winner, sums[c][h], at);
        }
    #pragma unroll
    for (int apart = 1; apart < 4; apart <<= 1) {
        keep_better(top, winner, __shfl_xor_sync(ALL, top, apart), __shfl_xor_sync(ALL, winner, apart));
        mine = fmax(mine, __shfl_xor_sync(ALL, mine, apart));
    }
}

extern "C" __global__ void __launch_bounds__(256) scores_dense(
    const VALUE *X, int64 n, int p,           // IN (n, p)
    const double *B, int columns, int k,      // IN (k, columns); columns <= p, the others of X are 0
    int first,                                // IN templates first to first + 8 TILES
    int width,                                // IN features of B in shared memory at a time, a multiple of 16
    int mode,
    int *labels, double *best, double *out)   // IN/OUT
{
    extern __shared__ double templates[];     // (8 TILES, width + 1): the odd pitch avoids bank conflicts
    int lane = threadIdx.x & 31, q = lane & 3, r = lane >> 2;
    bool once = width >= p;
    int64 rows_of_a_block = (blockDim.x >> 5) * ROWTILES * 8;
    for (int64 tile = blockIdx.x; tile * rows_of_a_block < n; tile += gridDim.x) {
        int64 row0 = tile * rows_of_a_block + (threadIdx.x >> 5) * ROWTILES * 8;
        double sums[ROWTILES][TILES][2] = {};
        for (int j0 = 0; j0 < p; j0 += width) {
            if (!once || tile == blockIdx.x) {
                __syncthreads();
                load_templates(B, k, columns, first, j0, width, templates);
                __syncthreads();
            }
            score_rows(X, n, p, row0, templates, j0, width, sums);
        }
        #pragma unroll
        for (int m = 0; m < ROWTILES; m++) {
            int64 row = row0 + m * 8 + r;
            bool inside = row < n;
            if (mode == 2) {
                #pragma unroll
                for (int c = 0; c < TILES; c++)
                    #pragma unroll
                    for (int h = 0; h < 2; h++) {
                        int at = first + 8 * c + 2 * q + h;
                        double s = sums[m][c][h];
                        if (inside && at < k) out[row * k + at] = s >= INFINITE_SCORE ? s : NEVER;
                    }
                continue;
            }
            double mine, top;
            int winner;
            best_of_row(sums[m], first, k, inside && mode == 1 ? labels[row] : -1, mine, top, winner);
            if (!inside || q) continue;
            if (mode == 0 && (first == 0 || top > best[row])) publish(row, top, winner, labels, best);
            if (mode == 1) {
                mine = mine >= INFINITE_SCORE ? mine : NEVER;
                top = top >= INFINITE_SCORE ? top : NEVER;
                best[row] = first ? fmax(best[row], mine) : mine;
                out[row] = first ? fmax(out[row], top) : top;
            }
        }
    }
}

#endif  // TILES
#endif  // VALUE

// row_e = the row of entry e.
extern "C" __global__ void row_of_entry(const int64 *indptr, int64 n, int *rows) {
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (i >= n) return;
    for (int64 e = indptr[i] + (threadIdx.x & 31); e < indptr[i + 1]; e += 32) rows[e] = (int)i;
}

// sums_cj = Σ of the partial sums of the units of feature j, in their order.
extern "C" __global__ void combine_units(
    const double *partial, const int64 *unit_of,   // IN (units, count), (p + 1,) where the units of a feature start
    int p, int first, int count,
    double *sums)                                  // OUT (k, p), rows first to first + count
{
    int64 at = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (int64)p * count) return;
    int64 j = at / count;
    int c = at % count;
    double s = 0.0;
    for (int64 u = unit_of[j]; u < unit_of[j + 1]; u++) s += partial[u * count + c];
    sums[(size)(first + c) * p + j] = s;
}

// 32 warps share a sum over parts, always in the same order: each takes every 32nd part, and the first warp adds these.
__device__ __forceinline__ double sum_of_parts(const double *__restrict__ first, int64 parts, int64 apart) {
    double s = 0.0;
    #pragma unroll 8
    for (int64 part = threadIdx.x >> 5; part < parts; part += 32) s += first[part * apart];
    return s;
}

__device__ __forceinline__ double sum_of_warps(double s) {
    __shared__ double sums[32][32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    sums[warp][lane] = s;
    __syncthreads();
    for (int t = 1; t < 32 && warp == 0; t++) s += sums[t][lane];
    return s;
}

// out_m = Σ of the partial sums over the parts.
extern "C" __global__ void combine_parts(
    const double *partial, int64 parts, int64 count,   // IN (parts, count)
    double *out)                                       // OUT (count,)
{
    int64 m = (int64)blockIdx.x * 32 + (threadIdx.x & 31);
    double s = sum_of_warps(m < count ? sum_of_parts(partial + m, parts, count) : 0.0);
    if (threadIdx.x < 32 && m < count) out[m] = s;
}

// sums_cj = Σ of the partial sums of the duties of label c.
extern "C" __global__ void combine_duties(
    const double *partial, int parts,            // IN (parts, duties, pitch)
    const int *owners, int duties,               // IN (duties,)
    int k, int p, int pitch,                     // IN columns of the rows, p of which are features
    double *sums)                                // OUT (k, p)
{
    int64 at = (int64)blockIdx.x * 32 + (threadIdx.x & 31);
    int c = at / p, j = at % p;
    double s = 0.0;
    if (c < k)
        for (int duty = 0; duty < duties; duty++)
            if (owners[duty] == c) s += sum_of_parts(partial + duty * pitch + j, parts, (int64)duties * pitch);
    s = sum_of_warps(s);
    if (threadIdx.x < 32 && c < k) sums[at] = s;
}

#define FIXED 3.5527136788005009e-15  // as in backend/run.py

// Write the centroids of the nonempty clusters, times the norms of their scales, to W, and the old W to `before`.
// Entries that would change only by rounding stay, so W stays equal to the centroids that gave the labels (Run.update).
extern "C" __global__ void put_filled(
    const double *table,                         // IN (KINDS, k) totals of a step
    int k, int p,
    int sized,                                   // IN whether centroids keep their size
    double *fresh,                               // IN/OUT (k, p)
    double *W, double *before)                   // IN/OUT, OUT (k, p)
{
    int64 at = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (int64)k * p) return;
    int c = at / p;
    double mass = table[c], squares = table[3 * k + c];   // rows 0 and 3 of COUNTED (backend/sums.py)
    before[at] = W[at];
    if (squares > 0 && !sized) fresh[at] *= sqrt(squares);
    if (fabs(fresh[at] - before[at]) <= FIXED * fabs(fresh[at])) fresh[at] = before[at];
    if (mass > 0) W[at] = fresh[at];
}

// The totals of a step by cluster, over ranges of rows. With w the weight of a row, v its weight in the sums, a its
// scale and a' its last scale: v a, w, w a, w a², w a a' of rows that stayed, w loss, and 1 for each row that moved.
#define KINDS 7

extern "C" __global__ void tally_rows(
    const int *labels, const int *before,                    // IN (n,); before is null in the first step
    const double *scales, const double *scales_before,       // IN (n,)
    const double *losses,                                    // IN (n,)
    const double *weights, const double *own,                // IN (n,) v and w; own is null if all are one
    int64 n, int64 rows,                                     // IN rows of a range
    int first, int count,                                    // IN labels first to first + count
    double *partial)                                         // OUT (ranges, KINDS, count)
{
    extern __shared__ double bins[];
    const int ahead = 8;                                     // rows that a thread reads at once
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, kind = blockIdx.y;
    int64 u = (int64)blockIdx.x * (blockDim.x >> 5) + warp;
    if (u * rows >= n) return;
    double *counts = bins + (size)warp * count * 32;
    for (int c = 0; c < count; c++) counts[c * 32 + lane] = 0.0;
    int64 stop = (u + 1) * rows < n ? (u + 1) * rows : n;
    const double *factors[3] = {
        kind == 0 ? weights : own,
        kind == 0 || (kind >= 2 && kind <= 4) ? scales : kind == 5 ? losses : 0,
        kind == 3 ? scales : kind == 4 ? scales_before : 0};
    for (int64 i = u * rows + lane; i < stop; i += 32 * ahead) {
        int label[ahead];
        double value[ahead];
        #pragma unroll
        for (int m = 0; m < ahead; m++) {
            label[m] = i + 32 * m < stop ? labels[i + 32 * m] : -1;
            value[m] = 1.0;
        }
        #pragma unroll
        for (int f = 0; f < 3; f++) {
            if (!factors[f]) continue;
            #pragma unroll
            for (int m = 0; m < ahead; m++) {
                double factor = factors[f][i + 32 * m < stop ? i + 32 * m : i];
                value[m] = value[m] == 0.0 ? 0.0 : value[m] * factor;  // a row of weight 0 may have an infinite loss
            }
        }
        if (kind == 4 || kind == 6) {
            #pragma unroll
            for (int m = 0; m < ahead; m++) {
                bool stayed = before && before[i + 32 * m < stop ? i + 32 * m : i] == label[m];
                if (kind == 6) value[m] = value[m] > 0.0;
                if (stayed == (kind == 6)) value[m] = 0.0;
            }
        }
        #pragma unroll
        for (int m = 0; m < ahead; m++)
            if (label[m] >= first && label[m] < first + count) counts[(label[m] - first) * 32 + lane] += value[m];
    }
    __syncwarp();
    for (int c = lane; c < count; c += 32) {
        double s = 0.0;
        for (int t = 0; t < 32; t++) s += counts[c * 32 + ((t + lane) & 31)];
        partial[(u * KINDS + kind) * count + c] = s;
    }
}
