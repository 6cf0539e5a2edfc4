// Attention of heads of eight entries, forward and backward, lanes across keys (AVX-512): in float32, and in bfloat16 by pairs.
//
// In bfloat16 what comes in and gradients that go out are rounded, and between products weights and their derivatives;
// scores, exponentials, all sums and the result are float32. Scores pair the entries of a head, sums over keys neighbouring
// keys, and sums over queries two queries, whose weights are laid into one another: that leaves keys in another order, which
// sums keep until they are written. Exponentials and logarithms are to the base 2. A row's keys are cut into blocks, queries
// into groups that share what is loaded of a block; what is summed stays in registers.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "lanes.h"

namespace {

#ifdef HAS_LANES

using namespace lanes;

constexpr int GROUP = 8;  // queries of a way back
constexpr float LN_2 = 0.6931471805599453f, SCALE = 0.35355339059327373f, FACTOR = SCALE / LN_2;  // one over the root of E
constexpr float SAFE = 60.f;  // scores within it of zero need no largest

template <class K>
using Words = Line[K::WORDS][2];  // a block of rows, lanes across rows
template <class K>
using Kept = Line[K::KEPT];  // a block of one query's weights or derivatives
template <class K>
using Plain = Kept<K>[E];  // a block of rows, entry by entry

// Scratch for the longest row.
template <class K>
struct Room {
    std::vector<Line> held;
    Words<K>*keys, *values;
    Plain<K>* plain;       // of what sums over keys multiply: values on the way there, keys on the way back
    Kept<K>* rows[GROUP];  // weights or derivatives, query by query
    Sums *dk, *dv;

    explicit Room(int64_t blocks) {
        held.resize(blocks * (4 * K::WORDS + (E + GROUP) * K::KEPT + 4 * E));
        auto take = [&, at = held.data()](int64_t lines) mutable { return std::exchange(at, at + lines * blocks); };
        for (auto** words : {&keys, &values}) *words = reinterpret_cast<Words<K>*>(take(2 * K::WORDS));
        plain = reinterpret_cast<Plain<K>*>(take(E * K::KEPT));
        for (auto& row : rows) row = reinterpret_cast<Kept<K>*>(take(K::KEPT));
        for (auto** sums : {&dk, &dv}) *sums = reinterpret_cast<Sums*>(take(2 * E));
    }
};

template <class K>
struct Head {
    const typename K::Number *q, *k, *v;
    int64_t stride, key_stride;
    int queries, keys;

    int64_t blocks() const { return (keys + STEP - 1) / STEP; }

    __mmask16 real(int64_t block, int half) const {
        return (1u << std::clamp<int64_t>(keys - block * STEP - half * LANES, 0, LANES)) - 1;
    }
};

// Rows of queries as they lie, zero from `end` on.
template <class Number, int COUNT, int WORDS>
void copied(const Number* x, int64_t stride, int first, int end, uint32_t (&out)[COUNT][WORDS]) {
    for (int i = 0; i < COUNT; ++i) {
        if (first + i < end) std::memcpy(out[i], x + (first + i) * stride, sizeof out[i]);
        else std::memset(out[i], 0, sizeof out[i]);
    }
}

// Queries as they lie; in float32 their scores are to the base 2 already, so that forward and backward agree to the last digit.
// Queries in bfloat16 stay as they are, and their scores are multiplied.
template <class K>
constexpr float LATER = K::PAIR > 1 ? FACTOR : 1.f;

template <class K, int COUNT, int WORDS>
void copied_queries(const Head<K>& head, int first, uint32_t (&out)[COUNT][WORDS]) {
    copied(head.q, head.stride, first, head.queries, out);
    if constexpr (K::PAIR == 1)
        for (auto& row : out) K::multiply(row, FACTOR);
}

template <class K>
inline __m512 beyond(__m512 score, float top) {
    const __m512 by = _mm512_set1_ps(top);
    if constexpr (K::PAIR == 1) return _mm512_sub_ps(score, by);
    else return _mm512_fmsub_ps(score, _mm512_set1_ps(FACTOR), by);
}

// Products of queries with a block of rows, added to what is there.
template <class K>
inline void products(const Words<K>& words, const uint32_t (*asked)[K::WORDS], __m512 (&s)[K::SHARE][2]) {
#pragma GCC unroll 8
    for (int c = 0; c < K::WORDS; ++c) {
        const __m512i first = bits(words[c][0]), second = bits(words[c][1]);
#pragma GCC unroll 8
        for (int i = 0; i < K::SHARE; ++i) {
            const __m512i q = everywhere(asked[i][c]);
            s[i][0] = K::dot(s[i][0], q, first);
            s[i][1] = K::dot(s[i][1], q, second);
        }
    }
}

// Sums over all keys for two queries, eight entries each.
template <class K>
inline __m512 averages(const Kept<K>* first, const Kept<K>* second, const Plain<K>* plain, int64_t blocks) {
    __m512 sum[16];
#pragma GCC unroll 16
    for (auto& one : sum) one = _mm512_setzero_ps();
    for (int64_t block = 0; block < blocks; ++block)
        for (int part = 0; part < K::KEPT; ++part) {
            const __m512i a = bits(first[block][part]), b = bits(second[block][part]);
#pragma GCC unroll 8
            for (int e = 0; e < E; ++e) {
                const __m512i x = bits(plain[block][e][part]);
                sum[e] = K::dot(sum[e], a, x);
                sum[E + e] = K::dot(sum[E + e], b, x);
            }
        }
    return totals(sum);
}

template <class K>
struct Forward {
    using Asked = uint32_t[K::SHARE][K::WORDS];
    const Head<K>& head;
    Room<K>& room;
    float *out, *lse;
    int64_t blocks = head.blocks();
    float longest = 0.f;  // squared, of the keys

    void prepare() {
        __m512 squares = _mm512_setzero_ps();
        for (int64_t block = 0; block < blocks; ++block) {
            Words<K> values, &keys = room.keys[block];
            K::across(head.v, head.key_stride, block * STEP, head.keys, values);
            K::plain(values, room.plain[block]);
            K::across(head.k, head.key_stride, block * STEP, head.keys, keys);
            for (int half = 0; half < 2; ++half) {
                __m512 square = _mm512_setzero_ps();
                for (int c = 0; c < K::WORDS; ++c) square = K::dot(square, bits(keys[c][half]), bits(keys[c][half]));
                squares = _mm512_max_ps(square, squares);
            }
        }
        longest = _mm512_reduce_max_ps(squares);
    }

    // Whether no score of these queries is further than `SAFE` from zero.
    bool near(const Asked& asked) const {
        return std::all_of(asked, asked + K::SHARE, [&](const uint32_t(&row)[K::WORDS]) {
            return product(K::widened(row), K::widened(row)) * longest * (LATER<K> * LATER<K>) <= SAFE * SAFE;
        });
    }

    void largest(const Asked& asked, float (&tops)[K::SHARE]) const {
        __m512 top[K::SHARE];
        for (auto& one : top) one = _mm512_set1_ps(-INFINITY);
        for (int64_t block = 0; block < blocks; ++block) {
            __m512 s[K::SHARE][2] = {};
            products<K>(room.keys[block], asked, s);
            for (int i = 0; i < K::SHARE; ++i)
                for (int half = 0; half < 2; ++half)
                    top[i] = _mm512_mask_max_ps(top[i], head.real(block, half), s[i][half], top[i]);
        }
        for (int i = 0; i < K::SHARE; ++i) tops[i] = _mm512_reduce_max_ps(top[i]) * LATER<K>;
    }

    void weigh(const Asked& asked, const float (&tops)[K::SHARE], float (&sums)[K::SHARE]) const {
        __m512 sum[K::SHARE];
        for (auto& one : sum) one = _mm512_setzero_ps();
        for (int64_t block = 0; block < blocks; ++block) {
            const __mmask16 real[2] = {head.real(block, 0), head.real(block, 1)};
            __m512 s[K::SHARE][2] = {};
            products<K>(room.keys[block], asked, s);
#pragma GCC unroll 8
            for (int i = 0; i < K::SHARE; ++i) {
                for (int half = 0; half < 2; ++half) {
                    s[i][half] = K::exp2(beyond<K>(s[i][half], tops[i]), real[half]);
                    sum[i] = _mm512_add_ps(sum[i], s[i][half]);
                }
                K::keep(s[i][0], s[i][1], room.rows[i][block]);
            }
        }
        for (int i = 0; i < K::SHARE; ++i) sums[i] = _mm512_reduce_add_ps(sum[i]);
    }

    void run() {
        prepare();
        for (int first = 0; first < head.queries; first += K::SHARE) {
            const int n = std::min(K::SHARE, head.queries - first);
            Asked asked;
            float tops[K::SHARE] = {}, sums[K::SHARE];
            copied_queries(head, first, asked);
            if (!near(asked)) largest(asked, tops);
            weigh(asked, tops, sums);
            for (int i = 0; i < n; ++i) lse[first + i] = tops[i] + std::log2(sums[i]);
            for (int i = 0; i < n; i += 2) {
                const __m512 mixed = averages<K>(room.rows[i], room.rows[i + 1], room.plain, blocks);
                const __m512 found = _mm512_div_ps(mixed, by_halves(sums[i], sums[i + 1]));
                Singles::write_two(found, out + (first + i) * head.stride, head.stride, n - i);
            }
        }
    }
};

// A group of queries on its way back.
template <class K>
struct Asking {
    static constexpr int ROWS = GROUP / K::PAIR;
    uint32_t asked[GROUP][K::WORDS], given[GROUP][K::WORDS];  // words of a query's row
    uint32_t asked_by_rows[ROWS][E], given_by_rows[ROWS][E];  // words of two queries, entry by entry
    float along[GROUP], sums[GROUP];
    Line weights[ROWS][2], derivatives[ROWS][2];  // of a block

    const auto& asked_rows() const {
        if constexpr (K::PAIR > 1) return asked_by_rows;
        else return asked;
    }
    const auto& given_rows() const {
        if constexpr (K::PAIR > 1) return given_by_rows;
        else return given;
    }
};

// Sums over the group's queries, added to those of a block.
template <class K, int ROWS>
inline void gather(const uint32_t (&rows)[ROWS][E], const Line (&weights)[ROWS][2], Sums& sums) {
    __m512 sum[E][2];
#pragma GCC unroll 8
    for (int e = 0; e < E; ++e) sum[e][0] = floats(sums[e][0]), sum[e][1] = floats(sums[e][1]);
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; ++row) {
        const __m512i first = bits(weights[row][0]), second = bits(weights[row][1]);
#pragma GCC unroll 8
        for (int e = 0; e < E; ++e) {
            const __m512i x = everywhere(rows[row][e]);
            sum[e][0] = K::dot(sum[e][0], x, first);
            sum[e][1] = K::dot(sum[e][1], x, second);
        }
    }
#pragma GCC unroll 8
    for (int e = 0; e < E; ++e) put(sums[e][0], sum[e][0]), put(sums[e][1], sum[e][1]);
}

template <class K>
struct Backward {
    using Number = typename K::Number;
    const Head<K>& head;
    Room<K>& room;
    const float *out, *lse;
    const Number* grad;
    Number *dq, *dk, *dv;
    int64_t blocks = head.blocks();

    void prepare() {
        for (int64_t block = 0; block < blocks; ++block) {
            K::across(head.k, head.key_stride, block * STEP, head.keys, room.keys[block]);
            K::across(head.v, head.key_stride, block * STEP, head.keys, room.values[block]);
            if constexpr (K::PAIR > 1) K::plain(room.keys[block], room.plain[block]);
        }
        if constexpr (K::PAIR == 1) room.plain = room.keys;  // the same words
        std::memset(room.dk, 0, blocks * sizeof(Sums));
        std::memset(room.dv, 0, blocks * sizeof(Sums));
    }

    void begin(Asking<K>& asking, int first) const {
        copied_queries(head, first, asking.asked);
        copied(grad, head.stride, first, head.queries, asking.given);
        if constexpr (K::PAIR > 1) {
            K::by_rows(asking.asked, asking.asked_by_rows);
            K::by_rows(asking.given, asking.given_by_rows);
        }
        for (int i = 0; i < GROUP; ++i) {  // what is behind the last query has no gradient
            const int64_t query = first + i;
            const bool real = query < head.queries;
            asking.along[i] = real ? product(K::widened(asking.given[i]), _mm256_loadu_ps(out + query * head.stride)) : 0.f;
            asking.sums[i] = real ? lse[query] : 0.f;
        }
    }

    // Weights and derivatives of four queries and a block of keys.
    void derive(Asking<K>& asking, int first, int64_t block) const {
        const __mmask16 real[2] = {head.real(block, 0), head.real(block, 1)};
        __m512 s[K::SHARE][2] = {}, d[K::SHARE][2];
        products<K>(room.keys[block], asking.asked + first, s);
#pragma GCC unroll 8
        for (int i = 0; i < K::SHARE; ++i)
            for (int half = 0; half < 2; ++half) {
                s[i][half] = K::exp2(beyond<K>(s[i][half], asking.sums[first + i]), real[half]);
                d[i][half] = _mm512_set1_ps(-asking.along[first + i]);
            }
        products<K>(room.values[block], asking.given + first, d);
#pragma GCC unroll 8
        for (int i = 0; i < K::SHARE; ++i) {
            for (int half = 0; half < 2; ++half) d[i][half] = _mm512_mul_ps(s[i][half], d[i][half]);
            K::keep(d[i][0], d[i][1], room.rows[first + i][block]);
        }
        K::laid(s, asking.weights + first / K::PAIR);
        K::laid(d, asking.derivatives + first / K::PAIR);
    }

    void run() {
        static thread_local Asking<K> asking;
        prepare();
        for (int first = 0; first < head.queries; first += GROUP) {
            begin(asking, first);
            for (int64_t block = 0; block < blocks; ++block) {
                for (int i = 0; i < GROUP; i += K::SHARE) derive(asking, i, block);
                gather<K>(asking.given_rows(), asking.weights, room.dv[block]);
                gather<K>(asking.asked_rows(), asking.derivatives, room.dk[block]);
            }
            for (int i = 0; i < GROUP; i += 2) {
                const __m512 sum = averages<K>(room.rows[i], room.rows[i + 1], room.plain, blocks);
                const int64_t place = (first + i) * head.stride;
                K::write_two(_mm512_mul_ps(sum, _mm512_set1_ps(SCALE)), dq + place, head.stride, head.queries - first - i);
            }
        }
        for (int64_t block = 0; block < blocks; ++block) {
            const int64_t place = block * STEP * head.key_stride;
            const int count = static_cast<int>(std::min<int64_t>(STEP, head.keys - block * STEP));
            K::write(room.dk[block], SCALE / (FACTOR / LATER<K>), dk + place, head.key_stride, count);
            K::write(room.dv[block], 1.f, dv + place, head.key_stride, count);
        }
    }
};

template <class K, class Number = typename K::Number>
void run(const Number* q, const Number* kv, const int64_t* starts, const int64_t* lengths, float* out, float* lse,
         const Number* grad, Number* dq, Number* dkv, int rows, int heads, int positions, int own) {
    const int64_t width = heads * E, longest = rows ? *std::max_element(lengths, lengths + rows) : 0;
    Room<K> room((longest + STEP - 1) / STEP);
    for (int b = 0; b < rows; ++b) {
        const int length = static_cast<int>(lengths[b]), queries = own ? length : positions;
        const int64_t first = own ? starts[b] : static_cast<int64_t>(b) * positions;
        for (int h = 0; h < heads; ++h) {
            const int64_t place = first * width + h * E, held = starts[b] * 2 * width + h * E;
            const Head<K> head{q + place, kv + held, kv + held + width, width, 2 * width, queries, length};
            float* sums = lse + first * heads + static_cast<int64_t>(h) * queries;
            if (grad == nullptr)
                Forward<K>{head, room, out + place, sums}.run();
            else
                Backward<K>{head, room, out + place, sums, grad + place, dq + place, dkv + held, dkv + held + width}.run();
        }
    }
}

#endif

}  // namespace

extern "C" {

int lanes_usable() { return lanes::usable(); }

#ifdef HAS_LANES
#define ATTENTION(KIND)                                                                                 \
    if (e != lanes::E) return 1;                                                                        \
    run<KIND>(q, kv, starts, lengths, out, lse, grad, dq, dkv, rows, heads, positions, own);            \
    return 0;
#else
#define ATTENTION(KIND) return 1;
#endif

// As attention_f32 of native_attention.cpp, for heads of eight entries.
int attention_lanes(int e, const float* q, const float* kv, const int64_t* starts, const int64_t* lengths, float* out, float* lse,
                    const float* grad, float* dq, float* dkv, int rows, int heads, int positions, int own) {
    ATTENTION(lanes::Singles)
}

// The same in bfloat16, all but out and lse.
int attention_lanes_low(int e, const uint16_t* q, const uint16_t* kv, const int64_t* starts, const int64_t* lengths, float* out,
                        float* lse, const uint16_t* grad, uint16_t* dq, uint16_t* dkv, int rows, int heads, int positions,
                        int own) {
    ATTENTION(lanes::Pairs)
}
}
