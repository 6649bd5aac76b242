// Divergences without closed forms: scores of rows and sums by label, entry by entry; kernels/bregman.py has the formulas.
//
// Series are Chebyshev series of TERMS terms on panels of the logarithmic axis, from onmf.backend.curved.
//
// Macros set by the host, besides VALUE, for the kernels over entries:
//   SLOPE, MOMENT    φ'(x) and x φ''(x), expressions of x and t
//   FACTOR           f(x) >= 1 with φ'(1 / x) = −log f(x), if there is one
//   FITTED           whether each row gets its best scale

#define TERMS 12
#define SCALE_TOL 1e-13        // as in kernels/bregman.py
#define MAX_SCALE_STEPS 60
#define FACTORS_PER_LOG 15     // factors after which the logarithm of a product is taken
#define MAX_EXPONENT 8         // counts up to this are exponents
#define MAX_FACTOR 1e12        // largest factor that is multiplied. Products of 24 of them stay inside float64.

#ifdef VALUE
__device__ __forceinline__ double slope(double x, double t) { return SLOPE; }
__device__ __forceinline__ double moment(double x, double t) { return MOMENT; }
#ifdef FACTOR
__device__ __forceinline__ double factor(double x, double t) { return FACTOR; }
#endif
#endif

// The panel in which a point lies, counted from the first, and its place there between -1 and 1.
__device__ __forceinline__ int panel_of(double point, double width, int first, int panels, double &place) {
    double panel = fmin(fmax(floor(point / width) - first, 0.0), panels - 1.0);
    place = 2.0 * (point / width - (panel + first)) - 1.0;
    return (int)panel;
}

// Σ_q c_q T_q(place), with coefficients that lie apart.
__device__ __forceinline__ double series(const double *c, int64 apart, double place) {
    double before = 0.0, now = 0.0;
    #pragma unroll
    for (int q = TERMS - 1; q > 0; q--) {
        double next = c[q * apart] + 2.0 * place * now - before;
        before = now;
        now = next;
    }
    return c[0] + place * now - before;
}

#ifdef FITTED

// Scores of the rows under all centroids, at their sizes or at the best scales. A warp per row: groups of `lanes` threads
// handle that number of centroids, and the groups share the entries.
extern "C" __global__ void curved_scores(
    const int64 *indptr, const int *indices,                      // IN rows; null for an array
    const VALUE *data, int pitch, int p,                          // IN entries; columns of an array, and its features
    const double *sizes, int64 n,                                 // IN (n,)
    const double *CT, int k, int lanes, double t,                 // IN (p, k); with FACTOR 1 / c unless FITTED
    const double *psi, double width, int first, int panels,       // IN (1 + FITTED, panels, TERMS, k) Ψ, its derivative
    double reach,                                                 // IN of the search for a scale, on both sides
    double *scores, double *scales)                               // OUT (n, k); scales if FITTED
{
    int64 i = ((int64)blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (i >= n) return;
    int lane = threadIdx.x & 31, own_lane = lane & (lanes - 1), group = lane / lanes, groups = 32 / lanes;
    int64 begin = indptr ? indptr[i] : i * pitch, end = indptr ? indptr[i + 1] : begin + p;
    double whole = sizes[i];
    for (int c0 = 0; c0 < k; c0 += lanes) {
        bool inside = c0 + own_lane < k;
        int c = inside ? c0 + own_lane : k - 1;
        // The sum of the terms of the entries (x_j, c_j), in all threads of this centroid: `add` adds one, `end_of` the rest
        auto sum_over_entries = [&](auto add, auto end_of) {
            double s = 0.0;
            for (int64 e = begin + group; e < end; e += 4 * groups) {
                VALUE x[4];
                double y[4];
                #pragma unroll
                for (int u = 0; u < 4; u++) {
                    int64 at = e + u * groups;
                    bool there = at < end;
                    x[u] = there ? data[at] : (VALUE)0;
                    y[u] = CT[(size)(!there ? 0 : indices ? indices[at] : (int)(at - begin)) * k + c];
                }
                #pragma unroll
                for (int u = 0; u < 4; u++)
                    if (x[u] != (VALUE)0) add(s, x[u], y[u]);
            }
            end_of(s);
            for (int apart = lanes; apart < 32; apart <<= 1) s += __shfl_xor_sync(ALL, s, apart);
            return s;
        };
        auto series_of = [&](int function, double point) {
            double place;
            int panel = panel_of(point, width, first, panels, place);
            return series(psi + ((int64)function * panels + panel) * TERMS * k + c, k, place);
        };
        double a = 0.0, score = 0.0;
        if (whole > 0.0) {
            double point = log(whole);
            if (FITTED) {
                // h = log(pull / push) = 0, by a secant iteration inside the bracket that the signs of h give
                double low = point - reach, high = point + reach, before = point, h_before = 0.0, tangent = -1.0;
                bool found = !inside;
                for (int step = 0; step < MAX_SCALE_STEPS && !__all_sync(ALL, found); step++) {
                    double b = exp(point);
                    double pull = sum_over_entries(
                        [&](double &s, VALUE x, double y) { s += wide(x) * moment(b * y, t); }, [](double &s) {});
                    if (found) continue;
                    double push = series_of(1, point);
                    double h = pull > 0.0 && push > 0.0 ? log(pull / push) : pull > 0.0 ? 1.0 : -1.0;
                    if (h > 0.0) low = point;
                    else high = point;
                    if (step > 0 && point != before && (h - h_before) / (point - before) < -1e-3)
                        tangent = (h - h_before) / (point - before);
                    double next = point - h / tangent;
                    if (!(low <= next && next <= high)) next = 0.5 * (low + high);
                    before = point;
                    h_before = h;
                    point = next;
                    found = fabs(point - before) <= SCALE_TOL;
                }
            }
            a = FITTED ? exp(point) : whole;
#ifdef FACTOR
            double product = 1.0, inverse = 1.0 / a;
            int factors = 0;
            auto take_logarithm = [&](double &s) {
                s -= log(product);
                product = 1.0;
                factors = 0;
            };
            auto add = [&](double &s, VALUE x, double y) {
                int count = (int)x;
                double reciprocal = FITTED ? inverse / y : inverse * y, f = factor(reciprocal, t);
                if (x > MAX_EXPONENT || x != (VALUE)count || !(f < MAX_FACTOR)) {
                    s += wide(x) * slope(FITTED ? a * y : a / y, t);
                    return;
                }
                factors += count;
                for (; count > 0; count--) product *= f;
                if (factors > FACTORS_PER_LOG) take_logarithm(s);
            };
            score = sum_over_entries(add, take_logarithm) - series_of(0, point);
#else
            auto add = [&](double &s, VALUE x, double y) { s += wide(x) * slope(a * y, t); };
            score = sum_over_entries(add, [](double &s) {}) - series_of(0, point);
#endif
        }
        if (group == 0 && inside) {
            scores[i * k + c] = score;
            if (FITTED) scales[i * k + c] = a;
        }
    }
}

#elif defined(VALUE)

// Σ w x φ'(μ) and Σ w x μ φ''(μ) with μ = a c, over the entries of unit u whose row i has label first + c. As sum_units.
extern "C" __global__ void curved_units(
    const int64 *starts, const int64 *stops, const int64 *unit_of, int64 units,   // IN units of the features, (p + 1,)
    const int *rows, const VALUE *data,                          // IN (nnz,) row and value of each entry
    const int *labels, const double *scales, const double *weights,   // IN (n,); weights is null if all are one
    const double *C, int p, double t,                            // IN (k, p)
    int first, int count,                                        // IN labels first to first + count
    double *partial)                                             // OUT (2, units, count)
{
    extern __shared__ double shared[];
    const int ahead = 4;                                         // entries that a thread reads at once
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int64 u = (int64)blockIdx.x * (blockDim.x >> 5) + warp;
    if (u >= units) return;
    double *slopes = shared + (size)warp * count * 65, *pulls = slopes + 32 * count, *own = pulls + 32 * count;
    int j = 0;                                                   // the feature, the last one with unit_of[j] <= u
    for (int beyond = p; beyond - j > 1;) {
        int middle = (j + beyond) / 2;
        if (unit_of[middle] <= u) j = middle;
        else beyond = middle;
    }
    for (int c = 0; c < count; c++) slopes[c * 32 + lane] = pulls[c * 32 + lane] = 0.0;
    for (int c = lane; c < count; c += 32) own[c] = C[(size)(first + c) * p + j];
    __syncwarp();
    int64 stop = stops[u];
    for (int64 e = starts[u] + lane; e < stop; e += 32 * ahead) {
        int row[ahead], label[ahead];
        double x[ahead], a[ahead];
        #pragma unroll
        for (int m = 0; m < ahead; m++) {
            bool there = e + 32 * m < stop;
            int64 at = there ? e + 32 * m : stop - 1;
            row[m] = rows[at];
            x[m] = there ? (double)data[at] : 0.0;
        }
        #pragma unroll
        for (int m = 0; m < ahead; m++) {
            label[m] = labels[row[m]] - first;
            a[m] = scales[row[m]];
            if (weights) x[m] *= weights[row[m]];
        }
        #pragma unroll
        for (int m = 0; m < ahead; m++) {
            if (label[m] < 0 || label[m] >= count || x[m] == 0.0 || !(a[m] > 0.0)) continue;
            double c = own[label[m]], mu = a[m] * c;
            if (!(c > 0.0)) continue;                            // such an entry is not asked for
            slopes[label[m] * 32 + lane] += x[m] * slope(mu, t);
            pulls[label[m] * 32 + lane] += x[m] * moment(mu, t);
        }
    }
    __syncwarp();
    for (int c = lane; c < count; c += 32) {
        double s = 0.0, r = 0.0;
        for (int m = 0; m < 32; m++) {
            s += slopes[c * 32 + ((m + lane) & 31)];
            r += pulls[c * 32 + ((m + lane) & 31)];
        }
        partial[u * count + c] = s;
        partial[(units + u) * count + c] = r;
    }
}

#else

// The loss, the pull and the push of each entry of the centroids.
extern "C" __global__ void curved_sums(
    const int64 *clusters, const int64 *features, const double *values, int64 entries,   // IN (entries,)
    const double *sums, int k, int p,                            // IN (2, k, p) slopes and pulls
    const double *both, double width, int first, int panels,     // IN (2, k, panels, TERMS) series of loss and push
    double *out)                                                 // OUT (3, entries)
{
    int64 e = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= entries) return;
    int64 c = clusters[e], at = c * p + features[e];
    double place;
    int panel = panel_of(log(values[e]), width, first, panels, place);
    const double *own = both + (c * panels + panel) * TERMS;
    out[e] = series(own, 1, place) - sums[at];
    out[entries + e] = sums[(int64)k * p + at];
    out[2 * entries + e] = series(own + (int64)k * panels * TERMS, 1, place);
}

// T_q of each point on its panel, for q below TERMS, and the panel among those of all clusters; -1 for minus infinity.
extern "C" __global__ void chebyshev_terms(
    const double *points, const int *clusters, int64 n,          // IN (n,)
    double width, int first, int panels,
    double *terms, int *places)                                  // OUT (n, TERMS), (n,)
{
    int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double place, before = 1.0;
    bool known = points[i] > NEVER;
    int panel = panel_of(known ? points[i] : 0.0, width, first, panels, place);
    places[i] = known ? clusters[i] * panels + panel : -1;
    double now = place;
    #pragma unroll
    for (int q = 0; q < TERMS; q++) {
        terms[i * TERMS + q] = before;
        double next = 2.0 * place * now - before;
        before = now;
        now = next;
    }
}

#endif
