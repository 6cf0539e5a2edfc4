// Attention of narrow heads over padded keys, forward and backward, for CPUs.
//
// A head of eight entries leaves matrix kernels idle: they are built for inner dimensions of 64 and more. Here keys lie across
// the vector lanes, transposed to [E][L] once per head, and a few queries share each load of them. What is computed for a block
// of keys stays in registers or in the first cache. The backward pass computes the scores again from the saved logarithm of
// each row's sum. Exponentials and logarithms are to the base 2.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace {

#ifdef __AVX512F__
constexpr int BYTES = 64, BLOCK = 4;  // of a register; registers of keys that a block has
#else
constexpr int BYTES = 32, BLOCK = 2;
#endif
constexpr int Q = 4;  // queries that share each load of keys and values
constexpr double LOG2_E = 1.4426950408889634, LN_2 = 0.6931471805599453;
constexpr double NEVER = -1e30;  // score of a key that is padding

template <typename T>
struct Lanes {
    using V [[gnu::vector_size(BYTES), gnu::may_alias]] = T;
    static constexpr int N = BYTES / sizeof(T);
};
template <typename T>
using V = typename Lanes<T>::V;
using Integers [[gnu::vector_size(BYTES)]] = int32_t;

template <typename T>
inline V<T>& at(T* x, int64_t place) {
    return reinterpret_cast<V<T>*>(x)[place];
}
template <typename T>
inline const V<T>& at(const T* x, int64_t place) {
    return reinterpret_cast<const V<T>*>(x)[place];
}

// 2^x for x that is not above zero by more than rounding: a polynomial for the fraction, the whole part into the exponent.
// Below 2^-100 it is zero: beside the row's largest it counts for nothing, and its products would be denormal, which is slow.
inline V<float> exp2_of(V<float> x) {
    const Integers n = __builtin_convertvector(x - 0.5f, Integers);  // rounds towards zero
    const V<float> r = x - __builtin_convertvector(n, V<float>);
    V<float> p = 1.3333558146428443e-3f * r + 9.6181291076284772e-3f;
    p = p * r + 5.5504108664821580e-2f;
    p = p * r + 2.4022650695910072e-1f;
    p = p * r + 6.9314718055994531e-1f;
    p = p * r + 1.f;
    const V<float> found = reinterpret_cast<V<float>>(reinterpret_cast<Integers>(p) + (n << 23));
    return x < -100.f ? V<float>{} : found;
}
inline V<double> exp2_of(V<double> x) {
    for (int l = 0; l < Lanes<double>::N; ++l) x[l] = std::exp2(x[l]);
    return x;
}

// Lane by lane a sum waits for the one before: sixteen times as long as the work of a short row.
template <typename T>
inline T sum_of(const V<T>& x) {
#ifdef __AVX512F__
    if constexpr (sizeof(T) == sizeof(float)) return _mm512_reduce_add_ps(reinterpret_cast<const __m512&>(x));
#endif
    T sum = 0;
    for (int l = 0; l < Lanes<T>::N; ++l) sum += x[l];
    return sum;
}

template <typename T>
inline T top_of(const V<T>& x) {
    T top = x[0];
    for (int l = 1; l < Lanes<T>::N; ++l) top = x[l] > top ? x[l] : top;
    return top;
}

// x [length, E] with rows `stride` apart -> out [E, padded], zero where there is no key.
template <typename T, int E>
void transpose(const T* x, int64_t stride, int length, int padded, T* out) {
    for (int e = 0; e < E; ++e) {
        for (int j = 0; j < length; ++j) out[e * padded + j] = x[j * stride + e];
        for (int j = length; j < padded; ++j) out[e * padded + j] = T(0);
    }
}

// Products of Q queries with a block of keys, added to `start`.
template <typename T, int E>
inline void products(const T* kt, const T (&q)[Q][E], int64_t block, int64_t registers, const V<T> (&start)[BLOCK],
                     V<T> (&s)[Q][BLOCK]) {
    for (int i = 0; i < Q; ++i)
        for (int b = 0; b < BLOCK; ++b) s[i][b] = start[b];
#pragma GCC unroll 8
    for (int e = 0; e < E; ++e)
        for (int b = 0; b < BLOCK; ++b) {
            const V<T> k = at(kt, e * registers + block * BLOCK + b);
            for (int i = 0; i < Q; ++i) s[i][b] += q[i][e] * k;
        }
}

// One head of one row. kt, vt [E, keys], `bias` [keys] zero or NEVER; scratch s [Q, keys].
template <typename T, int E>
void forward_head(const T* q, int64_t stride, int queries, const T* kt, const T* vt, const T* bias, int keys, T scale, T* out,
                  T* lse, T* s) {
    constexpr int HALF = E / 2;
    const int64_t registers = keys / Lanes<T>::N, blocks = registers / BLOCK;
    for (int first = 0; first < queries; first += Q) {
        T asked[Q][E], sums[Q];
        for (int i = 0; i < Q; ++i)
            for (int e = 0; e < E; ++e) asked[i][e] = scale * T(LOG2_E) * q[std::min(first + i, queries - 1) * stride + e];
        V<T> tops[Q];
        for (int i = 0; i < Q; ++i) tops[i] = V<T>{} + T(NEVER);
        for (int64_t j = 0; j < blocks; ++j) {
            V<T> start[BLOCK], found[Q][BLOCK];
            for (int b = 0; b < BLOCK; ++b) start[b] = at(bias, j * BLOCK + b);
            products<T, E>(kt, asked, j, registers, start, found);
            for (int i = 0; i < Q; ++i)
                for (int b = 0; b < BLOCK; ++b) {
                    at(s, i * registers + j * BLOCK + b) = found[i][b];
                    tops[i] = found[i][b] > tops[i] ? found[i][b] : tops[i];
                }
        }
        for (int i = 0; i < Q; ++i) {
            const T top = top_of<T>(tops[i]);
            V<T> sum{};
            for (int64_t j = 0; j < registers; ++j) {
                const V<T> p = exp2_of(at(s, i * registers + j) - top);
                at(s, i * registers + j) = p;
                sum += p;
            }
            sums[i] = sum_of<T>(sum);
            if (first + i < queries) lse[first + i] = top + std::log2(sums[i]);
        }
        for (int half = 0; half < 2; ++half) {
            V<T> mixed[Q][HALF] = {};
            for (int64_t j = 0; j < registers; ++j)
#pragma GCC unroll 16
                for (int e = 0; e < HALF; ++e) {
                    const V<T> v = at(vt, (half * HALF + e) * registers + j);
                    for (int i = 0; i < Q; ++i) mixed[i][e] += at(s, i * registers + j) * v;
                }
            for (int i = 0; i < std::min(Q, queries - first); ++i)
                for (int e = 0; e < HALF; ++e) out[(first + i) * stride + half * HALF + e] = sum_of<T>(mixed[i][e]) / sums[i];
        }
    }
}

// As forward_head; dkt, dvt [E, keys] are added to, dkt times log2(e).
template <typename T, int E>
void backward_head(const T* q, const T* out, const T* grad, int64_t stride, int queries, const T* kt, const T* vt,
                   const T* bias, int keys, T scale, const T* lse, T* dq, T* dkt, T* dvt) {
    const int64_t registers = keys / Lanes<T>::N, blocks = registers / BLOCK;
    for (int first = 0; first < queries; first += Q) {
        T asked[Q][E], given[Q][E], along[Q], sums[Q];
        const int n = std::min(Q, queries - first);
        for (int i = 0; i < Q; ++i) {
            const int64_t row = std::min(first + i, queries - 1) * stride;
            along[i] = 0;
            for (int e = 0; e < E; ++e) {
                asked[i][e] = i < n ? scale * T(LOG2_E) * q[row + e] : T(0);
                given[i][e] = i < n ? grad[row + e] : T(0);
                along[i] += given[i][e] * out[row + e];
            }
            sums[i] = lse[std::min(first + i, queries - 1)];
        }
        V<T> turned[E][Q] = {};
        for (int64_t j = 0; j < blocks; ++j) {
            V<T> start[BLOCK], p[Q][BLOCK], d[Q][BLOCK];
            for (int b = 0; b < BLOCK; ++b) start[b] = at(bias, j * BLOCK + b);
            products<T, E>(kt, asked, j, registers, start, p);
            for (int i = 0; i < Q; ++i)
                for (int b = 0; b < BLOCK; ++b) p[i][b] = exp2_of(p[i][b] - sums[i]);
            for (int b = 0; b < BLOCK; ++b) start[b] = V<T>{};
            products<T, E>(vt, given, j, registers, start, d);
            for (int i = 0; i < Q; ++i)
                for (int b = 0; b < BLOCK; ++b) d[i][b] = p[i][b] * (d[i][b] - along[i]);
            // Sums are kept in registers: the compiler must assume that a store changes what it has loaded.
            for (int e = 0; e < E; ++e) {
                V<T> sum[Q];
                for (int i = 0; i < Q; ++i) sum[i] = turned[e][i];
                for (int b = 0; b < BLOCK; ++b) {
                    const int64_t place = e * registers + j * BLOCK + b;
                    const V<T> k = at(kt, place);
                    V<T> dk = at(dkt, place), dv = at(dvt, place);
                    for (int i = 0; i < Q; ++i) {
                        sum[i] += d[i][b] * k;
                        dk += asked[i][e] * d[i][b];
                        dv += given[i][e] * p[i][b];
                    }
                    at(dkt, place) = dk;
                    at(dvt, place) = dv;
                }
                for (int i = 0; i < Q; ++i) turned[e][i] = sum[i];
            }
        }
        for (int i = 0; i < n; ++i)
            for (int e = 0; e < E; ++e) dq[(first + i) * stride + e] = scale * sum_of<T>(turned[e][i]);
    }
}

// kv, dkv [total, 2 * H * E] hold all rows without padding: row b has `lengths[b]` positions from `starts[b]` on. With `own` the
// queries are these positions, q, out, grad, dq [total, H * E] and lse [total * H]; else every row asks as many queries,
// [B, S, H * E] and [B, H, S].
template <typename T, int E>
void run(const T* q, const T* kv, const int64_t* starts, const int64_t* lengths, T* out, T* lse, const T* grad, T* dq, T* dkv,
         int rows, int heads, int positions, int own) {
    constexpr int STEP = BLOCK * Lanes<T>::N;
    const int64_t width = heads * E, longest = rows ? *std::max_element(lengths, lengths + rows) : 0;
    const int widest = static_cast<int>((longest + STEP - 1) / STEP * STEP);
    const T scale = T(1) / std::sqrt(T(E));
    std::vector<V<T>> room((4 * E + Q + 1) * (widest / Lanes<T>::N));
    T* const kt = reinterpret_cast<T*>(room.data());
    T *const vt = kt + E * widest, *const dkt = vt + E * widest, *const dvt = dkt + E * widest, *const s = dvt + E * widest;
    T* const bias = s + Q * widest;
    for (int b = 0; b < rows; ++b) {
        const int length = static_cast<int>(lengths[b]);
        const int keys = (length + STEP - 1) / STEP * STEP;
        const int queries = own ? length : positions;
        const int64_t first = own ? starts[b] : static_cast<int64_t>(b) * positions;
        for (int j = 0; j < keys; ++j) bias[j] = j < length ? T(0) : T(NEVER);
        for (int h = 0; h < heads; ++h) {
            const T* k = kv + starts[b] * 2 * width + h * E;
            const int64_t place = first * width + h * E;
            T* sums = lse + first * heads + static_cast<int64_t>(h) * queries;
            transpose<T, E>(k, 2 * width, length, keys, kt);
            transpose<T, E>(k + width, 2 * width, length, keys, vt);
            if (grad == nullptr) {
                forward_head<T, E>(q + place, width, queries, kt, vt, bias, keys, scale, out + place, sums, s);
                continue;
            }
            std::fill(dkt, dkt + E * keys, T(0));
            std::fill(dvt, dvt + E * keys, T(0));
            backward_head<T, E>(q + place, out + place, grad + place, width, queries, kt, vt, bias, keys, scale, sums, dq + place,
                                dkt, dvt);
            T* dk = dkv + (k - kv);
            for (int64_t j = 0; j < length; ++j)
                for (int e = 0; e < E; ++e) {
                    dk[j * 2 * width + e] = T(LN_2) * dkt[e * keys + j];
                    dk[j * 2 * width + width + e] = dvt[e * keys + j];
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
