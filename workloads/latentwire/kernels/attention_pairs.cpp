// Attention of heads of eight entries in bfloat16, forward and backward, by products of pairs (AVX512-BF16).
//
// A lane multiplies two pairs of bfloat16 and adds both products in float32: twice the products of an instruction. What comes
// in and gradients that go out are bfloat16; scores, exponentials, all sums and the result are float32; between products only
// weights and their derivatives are rounded. Scores pair the entries of a head, lanes across keys. Sums over keys pair neighbouring keys, sums
// over queries pair two queries, whose weights are laid into one another: that leaves keys in another order, which sums keep
// until they are written. Exponentials and logarithms are to the base 2. A row's keys are cut into blocks, queries into groups
// that share what is loaded of a block.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "pairs.h"

namespace {

#ifdef HAS_PAIRS

using namespace pairs;

constexpr int E = 8, WORDS = E / 2;  // of a head: entries, pairs of them
constexpr int STEP = 2 * LANES;      // keys of a block
constexpr int SHARE = 4;             // queries whose scores are computed together
constexpr int GROUP = 8;             // queries of a way back
constexpr float SCALE = 0.35355339059327373f, FACTOR = SCALE * 1.4426950408889634f;  // one over the root of E; to the base 2
constexpr float SAFE = 60.f;         // scores within it of zero need no largest

using Words = Line[WORDS][2];  // a block of rows: pairs of entries, lanes across rows
using Plain = Line[E];         // the same, entry by entry
using Sums = Line[E][2];       // float32

inline __m128i whole(const uint32_t (&words)[WORDS]) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(words)); }

// A block of rows from `first` on, zero from `end` on.
void across(const uint16_t* x, int64_t stride, int first, int end, Words& words) {
    for (int half = 0; half < 2; ++half) {
        __m512i r[4];  // row i of every four
        for (int i = 0; i < 4; ++i) {
            const auto row = [&](int four) { return row_of(x, stride, first + half * LANES + 4 * four + i, end); };
            r[i] = joined(joined(row(0), row(1)), joined(row(2), row(3)));
        }
        turned(r);
        for (int c = 0; c < WORDS; ++c) put(words[c][half], r[c]);
    }
}

void plain_of(const Words& words, Plain& plain) {
    for (int c = 0; c < WORDS; ++c) {
        const __m512i a = bits(words[c][0]), b = bits(words[c][1]);
        put(plain[2 * c], joined(_mm512_cvtepi32_epi16(a), _mm512_cvtepi32_epi16(b)));
        const __m512i odd_a = _mm512_srli_epi32(a, 16), odd_b = _mm512_srli_epi32(b, 16);
        put(plain[2 * c + 1], joined(_mm512_cvtepi32_epi16(odd_a), _mm512_cvtepi32_epi16(odd_b)));
    }
}

// Scratch for the longest row.
struct Room {
    std::vector<Line> held;
    Words *keys, *values;
    Plain* plain;       // of what sums over keys multiply: values on the way there, keys on the way back
    Line* rows[GROUP];  // weights or derivatives, query by query
    Sums *dk, *dv;

    explicit Room(int64_t blocks, bool backward) {
        held.resize(blocks * (4 * WORDS + E + GROUP + (backward ? 4 * E : 0)));
        auto take = [&, at = held.data()](int64_t lines) mutable { return std::exchange(at, at + lines * blocks); };
        for (auto** rows : {&keys, &values}) *rows = reinterpret_cast<Words*>(take(2 * WORDS));
        plain = reinterpret_cast<Plain*>(take(E));
        for (auto& row : rows) row = take(1);
        if (!backward) return;
        for (auto** sums : {&dk, &dv}) *sums = reinterpret_cast<Sums*>(take(2 * E));
    }
};

struct Head {
    const uint16_t *q, *k, *v;
    int64_t stride, key_stride;
    int queries, keys;

    int64_t blocks() const { return (keys + STEP - 1) / STEP; }

    __mmask16 real(int64_t block, int half) const {
        return (1u << std::clamp<int64_t>(keys - block * STEP - half * LANES, 0, LANES)) - 1;
    }
};

// Rows of COUNT queries as they lie, zero from `end` on.
template <int COUNT>
void copied(const uint16_t* x, int64_t stride, int first, int end, uint32_t (&out)[COUNT][WORDS]) {
    for (int i = 0; i < COUNT; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(out[i]), row_of(x, stride, first + i, end));
}

// Products of queries with a block of rows, added to what is there.
inline void products(const Words& words, const uint32_t (*asked)[WORDS], __m512 (&s)[SHARE][2]) {
#pragma GCC unroll 4
    for (int c = 0; c < WORDS; ++c) {
        const __m512i first = bits(words[c][0]), second = bits(words[c][1]);
#pragma GCC unroll 4
        for (int i = 0; i < SHARE; ++i) {
            const __m512i q = everywhere(asked[i][c]);
            s[i][0] = dot(s[i][0], q, first);
            s[i][1] = dot(s[i][1], q, second);
        }
    }
}

// Sums over all keys for two queries, eight entries each.
inline __m512 averages(const Line* first, const Line* second, const Plain* plain, int64_t blocks) {
    __m512 sum[16];
#pragma GCC unroll 16
    for (auto& one : sum) one = _mm512_setzero_ps();
    for (int64_t block = 0; block < blocks; ++block) {
        const __m512i a = bits(first[block]), b = bits(second[block]);
#pragma GCC unroll 8
        for (int e = 0; e < E; ++e) {
            const __m512i x = bits(plain[block][e]);
            sum[e] = dot(sum[e], a, x);
            sum[E + e] = dot(sum[E + e], b, x);
        }
    }
    return totals(sum);
}

// Two rows of eight entries each, of which `count` are written.
inline void write_rows(__m512 rows, uint16_t* out, int64_t stride, int count) {
    const __m256i both = (__m256i)_mm512_cvtneps_pbh(rows);
    if (count > 0) _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(both));
    if (count > 1) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + stride), _mm256_extracti128_si256(both, 1));
}
inline void write_rows(__m512 rows, float* out, int64_t stride, int count) {
    if (count > 0) _mm256_storeu_ps(out, _mm512_castps512_ps256(rows));
    if (count > 1) _mm256_storeu_ps(out + stride, _mm512_extractf32x8_ps(rows, 1));
}

struct Forward {
    const Head& head;
    Room& room;
    float *out, *lse;
    int64_t blocks = head.blocks();
    float longest = 0.f;  // squared, of the keys

    void prepare() {
        __m512 squares = _mm512_setzero_ps();
        for (int64_t block = 0; block < blocks; ++block) {
            Words values;
            across(head.v, head.key_stride, block * STEP, head.keys, values);
            plain_of(values, room.plain[block]);
            Words& keys = room.keys[block];
            across(head.k, head.key_stride, block * STEP, head.keys, keys);
            for (int half = 0; half < 2; ++half) {
                __m512 square = _mm512_setzero_ps();
                for (int c = 0; c < WORDS; ++c) square = dot(square, bits(keys[c][half]), bits(keys[c][half]));
                squares = _mm512_max_ps(square, squares);
            }
        }
        longest = _mm512_reduce_max_ps(squares);
    }

    // Whether no score of these queries is further than `SAFE` from zero.
    bool near(const uint32_t (&asked)[SHARE][WORDS]) const {
        const auto within = [&](const uint32_t(&row)[WORDS]) {
            return squared(whole(row)) * longest * (FACTOR * FACTOR) <= SAFE * SAFE;
        };
        return std::all_of(asked, asked + SHARE, within);
    }

    void largest(const uint32_t (&asked)[SHARE][WORDS], float (&tops)[SHARE]) const {
        __m512 top[SHARE];
        for (auto& one : top) one = _mm512_set1_ps(-INFINITY);
        for (int64_t block = 0; block < blocks; ++block) {
            __m512 s[SHARE][2] = {};
            products(room.keys[block], asked, s);
            for (int i = 0; i < SHARE; ++i)
                for (int half = 0; half < 2; ++half)
                    top[i] = _mm512_mask_max_ps(top[i], head.real(block, half), s[i][half], top[i]);
        }
        for (int i = 0; i < SHARE; ++i) tops[i] = _mm512_reduce_max_ps(top[i]) * FACTOR;
    }

    void weigh(const uint32_t (&asked)[SHARE][WORDS], const float (&tops)[SHARE], float (&sums)[SHARE]) const {
        __m512 sum[SHARE];
        for (auto& one : sum) one = _mm512_setzero_ps();
        for (int64_t block = 0; block < blocks; ++block) {
            const __mmask16 real[2] = {head.real(block, 0), head.real(block, 1)};
            __m512 s[SHARE][2] = {};
            products(room.keys[block], asked, s);
#pragma GCC unroll 4
            for (int i = 0; i < SHARE; ++i) {
                for (int half = 0; half < 2; ++half) {
                    const __m512 x = _mm512_fmsub_ps(s[i][half], _mm512_set1_ps(FACTOR), _mm512_set1_ps(tops[i]));
                    s[i][half] = exp2_of(x, real[half]);
                    sum[i] = _mm512_add_ps(sum[i], s[i][half]);
                }
                put(room.rows[i][block], rounded(s[i][0], s[i][1]));
            }
        }
        for (int i = 0; i < SHARE; ++i) sums[i] = _mm512_reduce_add_ps(sum[i]);
    }

    void run() {
        prepare();
        for (int first = 0; first < head.queries; first += SHARE) {
            const int n = std::min(SHARE, head.queries - first);
            uint32_t asked[SHARE][WORDS];
            float tops[SHARE] = {}, sums[SHARE];
            copied(head.q, head.stride, first, head.queries, asked);
            if (!near(asked)) largest(asked, tops);
            weigh(asked, tops, sums);
            for (int i = 0; i < n; ++i) lse[first + i] = tops[i] + std::log2(sums[i]);
            for (int i = 0; i < n; i += 2) {
                const __m512 mixed = averages(room.rows[i], room.rows[i + 1], room.plain, blocks);
                const __m512 found = _mm512_div_ps(mixed, by_halves(sums[i], sums[i + 1]));
                write_rows(found, out + (first + i) * head.stride, head.stride, n - i);
            }
        }
    }
};

// A group of queries on its way back.
struct Asking {
    uint32_t asked[GROUP][WORDS], given[GROUP][WORDS];                // pairs of entries
    uint32_t asked_by_two[GROUP / 2][E], given_by_two[GROUP / 2][E];  // pairs of queries
    float along[GROUP], sums[GROUP];
    Line weights[GROUP / 2][2], derivatives[GROUP / 2][2];  // of a block, pairs of queries
};

void by_two(const uint32_t (&rows)[GROUP][WORDS], uint32_t (&out)[GROUP / 2][E]) {
    for (int pair = 0; pair < GROUP / 2; ++pair) {
        const __m128i a = whole(rows[2 * pair]), b = whole(rows[2 * pair + 1]);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out[pair]), _mm_unpacklo_epi16(a, b));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out[pair] + E / 2), _mm_unpackhi_epi16(a, b));
    }
}

// Sums over the group's queries, added to those of a block.
inline void gather(const uint32_t (&rows)[GROUP / 2][E], const Line (&pairs)[GROUP / 2][2], Sums& sums) {
    __m512 sum[E][2];
#pragma GCC unroll 8
    for (int e = 0; e < E; ++e) sum[e][0] = floats(sums[e][0]), sum[e][1] = floats(sums[e][1]);
#pragma GCC unroll 4
    for (int pair = 0; pair < GROUP / 2; ++pair) {
        const __m512i first = bits(pairs[pair][0]), second = bits(pairs[pair][1]);
#pragma GCC unroll 8
        for (int e = 0; e < E; ++e) {
            const __m512i x = everywhere(rows[pair][e]);
            sum[e][0] = dot(sum[e][0], x, first);
            sum[e][1] = dot(sum[e][1], x, second);
        }
    }
#pragma GCC unroll 8
    for (int e = 0; e < E; ++e) put(sums[e][0], sum[e][0]), put(sums[e][1], sum[e][1]);
}

struct Backward {
    const Head& head;
    Room& room;
    const float *out, *lse;
    const uint16_t* grad;
    uint16_t *dq, *dk, *dv;
    int64_t blocks = head.blocks();

    void prepare() {
        for (int64_t block = 0; block < blocks; ++block) {
            across(head.k, head.key_stride, block * STEP, head.keys, room.keys[block]);
            across(head.v, head.key_stride, block * STEP, head.keys, room.values[block]);
            plain_of(room.keys[block], room.plain[block]);
        }
        std::memset(room.dk, 0, blocks * sizeof(Sums));
        std::memset(room.dv, 0, blocks * sizeof(Sums));
    }

    void begin(Asking& asking, int first) const {
        copied(head.q, head.stride, first, head.queries, asking.asked);
        copied(grad, head.stride, first, head.queries, asking.given);
        by_two(asking.asked, asking.asked_by_two);
        by_two(asking.given, asking.given_by_two);
        for (int i = 0; i < GROUP; ++i) {  // what is behind the last query has no gradient
            const int64_t query = first + i, place = query * head.stride;
            const bool real = query < head.queries;
            asking.along[i] = real ? product(whole(asking.given[i]), _mm256_loadu_ps(out + place)) : 0.f;
            asking.sums[i] = real ? lse[query] : 0.f;
        }
    }

    // Weights and derivatives of four queries and a block of keys.
    void derive(Asking& asking, int first, int64_t block) const {
        const __mmask16 real[2] = {head.real(block, 0), head.real(block, 1)};
        __m512 s[SHARE][2] = {}, d[SHARE][2];
        __m512i weights[SHARE], derivatives[SHARE];
        products(room.keys[block], asking.asked + first, s);
#pragma GCC unroll 4
        for (int i = 0; i < SHARE; ++i) {
            for (int half = 0; half < 2; ++half) {
                const __m512 sum = _mm512_set1_ps(asking.sums[first + i]);
                s[i][half] = exp2_of(_mm512_fmsub_ps(s[i][half], _mm512_set1_ps(FACTOR), sum), real[half]);
                d[i][half] = _mm512_set1_ps(-asking.along[first + i]);
            }
            weights[i] = rounded(s[i][0], s[i][1]);
        }
        products(room.values[block], asking.given + first, d);
#pragma GCC unroll 4
        for (int i = 0; i < SHARE; ++i) {
            derivatives[i] = rounded(_mm512_mul_ps(s[i][0], d[i][0]), _mm512_mul_ps(s[i][1], d[i][1]));
            put(room.rows[first + i][block], derivatives[i]);
        }
#pragma GCC unroll 2
        for (int i = 0; i < SHARE; i += 2) {
            laid(weights[i], weights[i + 1], asking.weights[(first + i) / 2]);
            laid(derivatives[i], derivatives[i + 1], asking.derivatives[(first + i) / 2]);
        }
    }

    // Sums of a block to its rows, of which `count` are real. Half h of sums holds key 8 l + 4 h + m in lane 4 l + m. Rounded,
    // both are quarters 2 h + l / 2 of one register, whose upper halves have odd l.
    static void write(const Sums& sums, float factor, uint16_t* rows, int64_t stride, int count) {
        const __m512 by = _mm512_set1_ps(factor);
        __m512i entries[E];
        for (int e = 0; e < E; ++e)
            entries[e] = rounded(_mm512_mul_ps(by, floats(sums[e][0])), _mm512_mul_ps(by, floats(sums[e][1])));
        for (int odd = 0; odd < 2; ++odd) {
            __m512i x[WORDS];
            for (int c = 0; c < WORDS; ++c) {
                const __m512i a = entries[2 * c], b = entries[2 * c + 1];
                x[c] = odd ? _mm512_unpackhi_epi16(a, b) : _mm512_unpacklo_epi16(a, b);
            }
            turned(x);
            for (int m = 0; m < 4; ++m) {
                Line found;
                put(found, x[m]);
                for (int quarter = 0; quarter < 4; ++quarter) {
                    const int row = 8 * (2 * (quarter % 2) + odd) + 4 * (quarter / 2) + m;
                    if (row < count) std::memcpy(rows + row * stride, found.word + WORDS * quarter, E * sizeof(uint16_t));
                }
            }
        }
    }

    void run() {
        static thread_local Asking asking;
        prepare();
        for (int first = 0; first < head.queries; first += GROUP) {
            begin(asking, first);
            for (int64_t block = 0; block < blocks; ++block) {
                for (int i = 0; i < GROUP; i += SHARE) derive(asking, i, block);
                gather(asking.given_by_two, asking.weights, room.dv[block]);
                gather(asking.asked_by_two, asking.derivatives, room.dk[block]);
            }
            for (int i = 0; i < GROUP; i += 2) {
                const __m512 sum = averages(room.rows[i], room.rows[i + 1], room.plain, blocks);
                const int64_t place = (first + i) * head.stride;
                write_rows(_mm512_mul_ps(sum, _mm512_set1_ps(SCALE)), dq + place, head.stride, head.queries - first - i);
            }
        }
        for (int64_t block = 0; block < blocks; ++block) {
            const int64_t place = block * STEP * head.key_stride;
            const int count = static_cast<int>(std::min<int64_t>(STEP, head.keys - block * STEP));
            write(room.dk[block], SCALE, dk + place, head.key_stride, count);
            write(room.dv[block], 1.f, dv + place, head.key_stride, count);
        }
    }
};

#endif

}  // namespace

extern "C" {

int pairs_usable() { return pairs::usable(); }

// As attention_f32 of native_attention.cpp, for heads of eight entries; all but out and lse is bfloat16.
int attention_pairs(int e, const uint16_t* q, const uint16_t* kv, const int64_t* starts, const int64_t* lengths, float* out,
                    float* lse, const uint16_t* grad, uint16_t* dq, uint16_t* dkv, int rows, int heads, int positions,
                    int own) {
#ifdef HAS_PAIRS
    if (e != E) return 1;
    const int64_t width = heads * E, longest = rows ? *std::max_element(lengths, lengths + rows) : 0;
    Room room((longest + STEP - 1) / STEP, grad != nullptr);
    for (int b = 0; b < rows; ++b) {
        const int length = static_cast<int>(lengths[b]), queries = own ? length : positions;
        const int64_t first = own ? starts[b] : static_cast<int64_t>(b) * positions;
        for (int h = 0; h < heads; ++h) {
            const int64_t place = first * width + h * E, held = starts[b] * 2 * width + h * E;
            const Head head{q + place, kv + held, kv + held + width, width, 2 * width, queries, length};
            float* sums = lse + first * heads + static_cast<int64_t>(h) * queries;
            if (grad == nullptr)
                Forward{head, room, out + place, sums}.run();
            else
                Backward{head, room, out + place, sums, grad + place, dq + place, dkv + held, dkv + held + width}.run();
        }
    }
    return 0;
#else
    return 1;
#endif
}
}
