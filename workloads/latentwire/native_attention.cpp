// Attention of narrow heads over padded keys, forward and backward, for CPUs.
//
// A head of eight entries leaves matrix kernels idle: they are built for inner dimensions of 64 and more. Here scores are
// computed for a few queries at a time with keys across the vector lanes, and never leave the first cache. Keys and values are
// transposed to [E][L] once per head. The backward pass computes the scores again from the saved log of each row's sum.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

constexpr int Q = 4;  // queries that share each load of keys and values

inline float fast_exp(float x) {
    // Cody and Waite: x = n log 2 + r, a polynomial in r, n into the exponent; at most 2 units in the last place.
    x = x < -87.f ? -87.f : x;
    const float n = std::floor(x * 1.44269504088896341f + 0.5f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.f;
    return p * __builtin_bit_cast(float, (static_cast<int32_t>(n) + 127) << 23);
}
inline double fast_exp(double x) { return std::exp(x); }

template <typename T, int E>
void transpose(const T* x, int64_t stride, int length, int padded, T* out) {
    for (int e = 0; e < E; ++e) {
        for (int j = 0; j < length; ++j) out[e * padded + j] = x[j * stride + e];
        for (int j = length; j < padded; ++j) out[e * padded + j] = T(0);
    }
}

// Scores of Q queries against all keys; rows of `s` are `padded` apart.
template <typename T, int E>
inline void scores(const T* __restrict kt, const T (&q)[Q][E], int length, int padded, T* __restrict s) {
#pragma omp simd
    for (int j = 0; j < length; ++j) {
        T a0 = 0, a1 = 0, a2 = 0, a3 = 0;
        for (int e = 0; e < E; ++e) {
            const T k = kt[e * padded + j];
            a0 += q[0][e] * k;
            a1 += q[1][e] * k;
            a2 += q[2][e] * k;
            a3 += q[3][e] * k;
        }
        s[j] = a0;
        s[padded + j] = a1;
        s[2 * padded + j] = a2;
        s[3 * padded + j] = a3;
    }
}

template <typename T, int E>
void forward_head(const T* q, int64_t q_stride, int queries, const T* kt, const T* vt, int keys, int padded, T scale, T* out,
                  int64_t out_stride, T* lse, T* s) {
    for (int first = 0; first < queries; first += Q) {
        T asked[Q][E];
        for (int i = 0; i < Q; ++i)
            for (int e = 0; e < E; ++e) asked[i][e] = scale * q[std::min(first + i, queries - 1) * q_stride + e];
        scores<T, E>(kt, asked, keys, padded, s);
        T sums[Q];
        for (int i = 0; i < Q; ++i) {
            T* p = s + i * padded;
            T top = p[0];
#pragma omp simd reduction(max : top)
            for (int j = 0; j < keys; ++j) top = p[j] > top ? p[j] : top;
            T sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int j = 0; j < keys; ++j) {
                p[j] = fast_exp(p[j] - top);
                sum += p[j];
            }
            sums[i] = sum;
            if (first + i < queries) lse[first + i] = top + std::log(sum);
        }
        for (int e = 0; e < E; ++e) {
            const T* v = vt + e * padded;
            T r0 = 0, r1 = 0, r2 = 0, r3 = 0;
#pragma omp simd reduction(+ : r0, r1, r2, r3)
            for (int j = 0; j < keys; ++j) {
                r0 += s[j] * v[j];
                r1 += s[padded + j] * v[j];
                r2 += s[2 * padded + j] * v[j];
                r3 += s[3 * padded + j] * v[j];
            }
            const T r[Q] = {r0, r1, r2, r3};
            for (int i = 0; i < std::min(Q, queries - first); ++i) out[(first + i) * out_stride + e] = r[i] / sums[i];
        }
    }
}

template <typename T, int E>
void backward_head(const T* q, const T* out, const T* grad, int64_t stride, int queries, const T* kt, const T* vt, int keys,
                   int padded, T scale, const T* lse, T* dq, T* dkt, T* dvt, T* s, T* dp) {
    for (int first = 0; first < queries; first += Q) {
        T asked[Q][E], given[Q][E], along[Q], sums[Q];
        const int n = std::min(Q, queries - first);
        for (int i = 0; i < Q; ++i) {
            const int64_t row = std::min(first + i, queries - 1) * stride;
            along[i] = 0;
            for (int e = 0; e < E; ++e) {
                asked[i][e] = scale * q[row + e];
                given[i][e] = i < n ? grad[row + e] : T(0);
                along[i] += given[i][e] * out[row + e];
            }
            sums[i] = lse[std::min(first + i, queries - 1)];
        }
        scores<T, E>(kt, asked, keys, padded, s);
        scores<T, E>(vt, given, keys, padded, dp);
        for (int i = 0; i < Q; ++i) {
            T* p = s + i * padded;
            T* d = dp + i * padded;
            const T sum = sums[i], inner = along[i], live = i < n ? T(1) : T(0);
#pragma omp simd
            for (int j = 0; j < keys; ++j) {
                p[j] = live * fast_exp(p[j] - sum);
                d[j] = p[j] * (d[j] - inner);
            }
        }
        for (int e = 0; e < E; ++e) {
            const T* k = kt + e * padded;
            T* dk = dkt + e * padded;
            T* dv = dvt + e * padded;
            T r0 = 0, r1 = 0, r2 = 0, r3 = 0;
#pragma omp simd reduction(+ : r0, r1, r2, r3)
            for (int j = 0; j < keys; ++j) {
                const T d0 = dp[j], d1 = dp[padded + j], d2 = dp[2 * padded + j], d3 = dp[3 * padded + j];
                r0 += d0 * k[j];
                r1 += d1 * k[j];
                r2 += d2 * k[j];
                r3 += d3 * k[j];
                dk[j] += d0 * asked[0][e] + d1 * asked[1][e] + d2 * asked[2][e] + d3 * asked[3][e];
                dv[j] += s[j] * given[0][e] + s[padded + j] * given[1][e] + s[2 * padded + j] * given[2][e] +
                         s[3 * padded + j] * given[3][e];
            }
            const T r[Q] = {r0, r1, r2, r3};
            for (int i = 0; i < n; ++i) dq[(first + i) * stride + e] = scale * r[i];
        }
    }
}

// kv, dkv [total, 2 * H * E] hold all rows without padding: row b has `lengths[b]` positions from `starts[b]` on. With `own` the
// queries are these positions, q, out, grad, dq [total, H * E] and lse [total * H]; else every row asks as many queries,
// [B, S, H * E] and [B, H, S].
template <typename T, int E>
void run(const T* q, const T* kv, const int64_t* starts, const int64_t* lengths, T* out, T* lse, const T* grad, T* dq, T* dkv,
         int rows, int heads, int positions, int own) {
    const int64_t width = heads * E, longest = rows ? *std::max_element(lengths, lengths + rows) : 0;
    const int padded = static_cast<int>((longest + 15) / 16 * 16);
    const T scale = T(1) / std::sqrt(T(E));
    std::vector<T> kt(E * padded), vt(E * padded), s(Q * padded), dp(Q * padded), dkt(E * padded), dvt(E * padded);
    for (int b = 0; b < rows; ++b) {
        const int length = static_cast<int>(lengths[b]);
        const int queries = own ? length : positions;
        const int64_t first = own ? starts[b] : static_cast<int64_t>(b) * positions;
        for (int h = 0; h < heads; ++h) {
            const T* k = kv + starts[b] * 2 * width + h * E;
            const int64_t at = first * width + h * E;
            T* sums = lse + first * heads + static_cast<int64_t>(h) * queries;
            transpose<T, E>(k, 2 * width, length, padded, kt.data());
            transpose<T, E>(k + width, 2 * width, length, padded, vt.data());
            if (grad == nullptr) {
                forward_head<T, E>(q + at, width, queries, kt.data(), vt.data(), length, padded, scale, out + at, width, sums,
                                   s.data());
                continue;
            }
            std::fill(dkt.begin(), dkt.end(), T(0));
            std::fill(dvt.begin(), dvt.end(), T(0));
            backward_head<T, E>(q + at, out + at, grad + at, width, queries, kt.data(), vt.data(), length, padded, scale, sums,
                                dq + at, dkt.data(), dvt.data(), s.data(), dp.data());
            T* dk = dkv + (k - kv);
            for (int64_t j = 0; j < length; ++j)
                for (int e = 0; e < E; ++e) {
                    dk[j * 2 * width + e] = dkt[e * padded + j];
                    dk[j * 2 * width + width + e] = dvt[e * padded + j];
                }
        }
    }
}

template <typename T>
int choose(int e, const T* q, const T* kv, const int64_t* starts, const int64_t* lengths, T* out, T* lse, const T* grad, T* dq,
           T* dkv, int rows, int heads, int positions, int own) {
    switch (e) {
        case 4: run<T, 4>(q, kv, starts, lengths, out, lse, grad, dq, dkv, rows, heads, positions, own); return 0;
        case 8: run<T, 8>(q, kv, starts, lengths, out, lse, grad, dq, dkv, rows, heads, positions, own); return 0;
        case 16: run<T, 16>(q, kv, starts, lengths, out, lse, grad, dq, dkv, rows, heads, positions, own); return 0;
        case 32: run<T, 32>(q, kv, starts, lengths, out, lse, grad, dq, dkv, rows, heads, positions, own); return 0;
        default: return 1;
    }
}

}  // namespace

extern "C" {
int attention_f32(int e, const float* q, const float* kv, const int64_t* starts, const int64_t* lengths, float* out, float* lse,
                  const float* grad, float* dq, float* dkv, int rows, int heads, int positions, int own) {
    return choose<float>(e, q, kv, starts, lengths, out, lse, grad, dq, dkv, rows, heads, positions, own);
}
int attention_f64(int e, const double* q, const double* kv, const int64_t* starts, const int64_t* lengths, double* out,
                  double* lse, const double* grad, double* dq, double* dkv, int rows, int heads, int positions, int own) {
    return choose<double>(e, q, kv, starts, lengths, out, lse, grad, dq, dkv, rows, heads, positions, own);
}
}
