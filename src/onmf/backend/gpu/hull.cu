// The distance of rows to the convex hull of the origin and chosen rows; kernels/project.py explains the method.
//
// Each warp projects one row at a time. Its lanes share the vertices. Symbols: h weights of the vertices, g products of
// the row with them, d derivatives, L the Cholesky factor of the face (a packed lower triangle).

__device__ __forceinline__ double sum_of_lanes(double s) {
    #pragma unroll
    for (int apart = 16; apart; apart >>= 1) s += __shfl_xor_sync(ALL, s, apart);
    return s;
}

// The largest number and the lowest index of it, in every lane.
__device__ __forceinline__ void best_of_lanes(double &best, int &index) {
    #pragma unroll
    for (int apart = 16; apart; apart >>= 1)
        keep_better(best, index, __shfl_xor_sync(ALL, best, apart), __shfl_xor_sync(ALL, index, apart));
}

#define AT(a, b) ((a) * ((a) + 1) / 2 + (b))

// Move h towards the minimum over the face of the vertices with h > 0, as far as h >= 0 allows.
__device__ void minimise_over_face(
    const double *gram, int vertices, const double *d, double *h, int *used, double *L, double *move)
{
    int lane = threadIdx.x & 31, number = 0;
    for (int c0 = 0; c0 < vertices; c0 += 32) {
        bool positive = c0 + lane < vertices && h[c0 + lane] > 0.0;
        unsigned all = __ballot_sync(ALL, positive);
        if (positive) used[number + __popc(all & (1u << lane) - 1)] = c0 + lane;
        number += __popc(all);
    }
    __syncwarp();
    int m = number - 1, base = used[0];       // directions: from the base to each of the other vertices
    const double *of_base = gram + (size)base * vertices;
    // Linearly dependent directions are left out.
    for (int b = 0; b < m; b++) {
        int v = used[b + 1];
        double diagonal = 0.0;
        for (int a0 = b; a0 < m; a0 += 32) {
            int a = a0 + lane;
            double value = 0.0, whole = 0.0;
            if (a < m) {
                int u = used[a + 1];
                whole = value = gram[(size)v * vertices + u] - of_base[u] - of_base[v] + of_base[base];
                for (int e = 0; e < b; e++) value -= L[AT(a, e)] * L[AT(b, e)];
            }
            if (a0 == b) diagonal = __shfl_sync(ALL, value > 1e-13 * whole ? sqrt(value) : 0.0, 0);
            if (a < m) L[AT(a, b)] = a == b ? diagonal : diagonal > 0.0 ? value / diagonal : 0.0;
        }
        __syncwarp();
    }
    // Solve L Lᵀ move = d_base − d.
    for (int a = lane; a < m; a += 32) move[a] = d[base] - d[used[a + 1]];
    __syncwarp();
    for (int e = 0; e < m; e++) {
        double pivot = L[AT(e, e)], found = pivot > 0.0 ? move[e] / pivot : 0.0;
        __syncwarp();
        for (int a = e + lane; a < m; a += 32) move[a] = a == e ? found : move[a] - L[AT(a, e)] * found;
        __syncwarp();
    }
    for (int e = m - 1; e >= 0; e--) {
        double pivot = L[AT(e, e)], found = pivot > 0.0 ? move[e] / pivot : 0.0;
        __syncwarp();
        for (int a = lane; a <= e; a += 32) move[a] = a == e ? found : move[a] - L[AT(e, a)] * found;
        __syncwarp();
    }
    double back = 0.0;
    for (int a = lane; a < m; a += 32) back -= move[a];
    back = sum_of_lanes(back);
    double shortest = NEVER;                  // minus the largest step that keeps h >= 0
    int blocking = NOBODY;
    for (int a = lane; a < number; a += 32) {
        double delta = a ? move[a - 1] : back, weight = h[used[a]];
        if (delta < 0.0 && -delta > weight) keep_better(shortest, blocking, weight / delta, a);
    }
    best_of_lanes(shortest, blocking);
    double length = blocking == NOBODY ? 1.0 : -shortest;
    for (int a = lane; a < number; a += 32) {
        double moved = h[used[a]] + length * (a ? move[a - 1] : back);
        h[used[a]] = a == blocking ? 0.0 : fmax(moved, 0.0);
    }
    __syncwarp();
}

extern "C" __global__ void project_on_hull(
    const double *products, int64 n,          // IN (vertices, n) products of the rows with the vertices; 0 is the origin
    const double *gram, int vertices,         // IN (vertices, vertices)
    const double *squares,                    // IN (n,) squared norms of the rows
    const int64 *rows, int64 count,           // IN (count,) rows to project
    double enough,                            // IN stop the moves of a row once its squared distance is below this
    double *weights, int width,               // IN/OUT (n, width) h of each row, from the last call
    double *residuals,                        // OUT (n,) squared distances, or an upper bound below enough
    double *room)                             // memory for L, null if it is in shared memory
{
    extern __shared__ double shared[];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    int triangle = vertices * (vertices - 1) / 2, vectors = 4 * vertices + (vertices + 1) / 2;
    double *h = shared + (size)warp * (vectors + (room ? 0 : triangle));
    double *g = h + vertices, *d = g + vertices, *move = d + vertices;
    int *used = (int *)(move + vertices);
    double *L = room ? room + ((size)blockIdx.x * warps + warp) * triangle : h + vectors;
    for (int64 at = (int64)blockIdx.x * warps + warp; at < count; at += (int64)gridDim.x * warps) {
        int64 i = rows[at];
        double square = squares[i], residual = square;
        for (int c = lane; c < vertices; c += 32) {
            h[c] = weights[i * width + c];
            g[c] = products[c * n + i];
        }
        __syncwarp();
        for (int round = 0; round < 100 * vertices; round++) {
            double lowest = NEVER, part = 0.0;
            int to = NOBODY;
            for (int c = lane; c < vertices; c += 32) {
                double slope = -g[c];
                for (int e = 0; e < vertices; e++)
                    if (h[e] != 0.0) slope += gram[(size)e * vertices + c] * h[e];
                d[c] = slope;
                part += h[c] * (slope - g[c]);
                keep_better(lowest, to, -slope, c);
            }
            best_of_lanes(lowest, to);
            residual = square + sum_of_lanes(part);
            double gap = 0.0, most = 0.0, length = 0.0;
            int source = NOBODY;
            for (int c = lane; c < vertices; c += 32) {
                double slope = d[c] + lowest, step = h[c];
                if (!(step > 0.0 && slope > 0.0)) continue;
                gap = fmax(gap, slope);
                double curvature = gram[(size)to * vertices + to] + gram[(size)c * vertices + c] - 2.0 * gram[(size)to * vertices + c];
                if (curvature * step > slope) step = slope / curvature;
                double improvement = step * (slope - 0.5 * step * curvature);
                if (improvement > most) { most = improvement; source = c; length = step; }
            }
            int own = source;
            best_of_lanes(most, source);
            #pragma unroll
            for (int apart = 16; apart; apart >>= 1) gap = fmax(gap, __shfl_xor_sync(ALL, gap, apart));
            if (source == NOBODY || residual < enough || gap <= 1e-9 * residual || gap <= 1e-15 * square) break;
            length = __shfl_sync(ALL, length, __ffs(__ballot_sync(ALL, own == source)) - 1);
            __syncwarp();
            for (int c = lane; c < vertices; c += 32) {
                d[c] += length * (gram[(size)to * vertices + c] - gram[(size)source * vertices + c]);
                if (c == to) h[c] += length;
                if (c == source) h[c] -= length;
            }
            __syncwarp();
            minimise_over_face(gram, vertices, d, h, used, L, move);
        }
        for (int c = lane; c < vertices; c += 32) weights[i * width + c] = h[c];
        if (lane == 0) residuals[i] = fmax(residual, 0.0);
        __syncwarp();
    }
}
