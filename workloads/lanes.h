// Rows of eight numbers, lanes across rows (AVX-512): float32 as it is, bfloat16 in pairs, of which a lane multiplies two and adds
// both products to a float32. A block is 32 rows: two registers of words, a word being one float32 or a pair of bfloat16.
#pragma once

#include <cstdint>
#include <cstring>

// Processors that multiply pairs: only on these both kinds have been measured.
#if defined(__AVX512BF16__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HAS_LANES 1
#include <immintrin.h>
#endif

namespace lanes {

inline bool usable() {
#ifdef HAS_LANES
    return true;  // what is built here is for this processor
#else
    return false;
#endif
}

#ifdef HAS_LANES

constexpr int E = 8, LANES = 16, STEP = 2 * LANES;  // numbers of a row, words of a register, rows of a block

struct alignas(64) Line {
    uint32_t word[LANES];
};
using Sums = Line[E][2];  // of a block, float32

inline __m512i bits(const Line& line) { return _mm512_load_si512(&line); }
inline __m512 floats(const Line& line) { return _mm512_load_ps(&line); }
inline void put(Line& line, __m512i value) { _mm512_store_si512(&line, value); }
inline void put(Line& line, __m512 value) { _mm512_store_ps(&line, value); }
inline __m512i everywhere(uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }

inline __m256i joined(__m128i first, __m128i second) { return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1); }
inline __m512i joined(__m256i first, __m256i second) { return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1); }

inline __m512 by_halves(float first, float second) {
    return _mm512_insertf32x8(_mm512_set1_ps(first), _mm256_set1_ps(second), 1);
}

// The sum of eight products.
inline float product(__m256 a, __m256 b) {
    const __m256 x = _mm256_mul_ps(a, b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The sums of sixteen registers, in order.
inline __m512 totals(const __m512 (&x)[16]) {
    __m512 by_two[8], by_four[4], by_eight[2];
    for (int i = 0; i < 8; ++i)
        by_two[i] = _mm512_add_ps(_mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]), _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]));
    for (int i = 0; i < 4; ++i) {
        const __m512d a = _mm512_castps_pd(by_two[2 * i]), b = _mm512_castps_pd(by_two[2 * i + 1]);
        by_four[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    const auto halved = [](__m512 a, __m512 b) {
        return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
    };
    for (int i = 0; i < 2; ++i) by_eight[i] = halved(by_four[2 * i], by_four[2 * i + 1]);
    return halved(by_eight[0], by_eight[1]);
}

// Four by four words in each quarter of four registers, rows to columns.
inline void turned(__m512i (&x)[4]) {
    const __m512i a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpacklo_epi32(x[2], x[3]);
    const __m512i c = _mm512_unpackhi_epi32(x[0], x[1]), d = _mm512_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm512_unpacklo_epi64(a, b), x[1] = _mm512_unpackhi_epi64(a, b);
    x[2] = _mm512_unpacklo_epi64(c, d), x[3] = _mm512_unpackhi_epi64(c, d);
}

// Sixteen rows' four words across; `four(row)` are the words of a row.
template <class Four>
inline void put_across(const Four& four, Line (*words)[2], int half) {
    __m512i x[4];  // row i of every four
    for (int i = 0; i < 4; ++i) x[i] = joined(joined(four(i), four(4 + i)), joined(four(8 + i), four(12 + i)));
    turned(x);
    for (int c = 0; c < 4; ++c) put(words[c][half], x[c]);
}

// What a quarter of sixteen lanes holds after `turned`, as a row's four words.
inline void put_row(__m512i x, int quarter, void* row) {
    Line found;
    put(found, x);
    std::memcpy(row, found.word + 4 * quarter, 16);
}

// float32, one in a lane.
struct Singles {
    using Number = float;
    static constexpr int PAIR = 1, WORDS = E, KEPT = 2;  // numbers of a word, words of a row, registers of 32 numbers
    static constexpr int SHARE = 4;                      // rows that are multiplied with a block together

    static __m512 dot(__m512 sum, __m512i a, __m512i b) {
        return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
    }

    // 2^x to 1e-7 for x that is not above zero by more than rounding; what is below 2^-100 counts for nothing, and its products
    // would be denormal, which is slow. Zero in lanes that are not real; what is not a number stays so.
    static __m512 exp2(__m512 x, __mmask16 real) {
        const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(x, n);
        __m512 p = _mm512_set1_ps(1.327646419e-3f);
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.675541272e-3f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550713298e-2f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402211973e-1f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931469670e-1f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
        return _mm512_maskz_scalef_ps(_mm512_mask_cmp_ps_mask(real, x, _mm512_set1_ps(-100.f), _CMP_NLT_UQ), p, n);
    }

    static __m256 widened(const uint32_t (&row)[WORDS]) { return _mm256_loadu_ps(reinterpret_cast<const float*>(row)); }
    static void multiply(uint32_t (&row)[WORDS], float by) {
        _mm256_storeu_ps(reinterpret_cast<float*>(row), _mm256_mul_ps(widened(row), _mm256_set1_ps(by)));
    }

    // A block of rows from `first` on, zero from `end` on.
    static void across(const float* x, int64_t stride, int first, int end, Line (&words)[WORDS][2]) {
        for (int half = 0; half < 2; ++half)
            for (int c = 0; c < WORDS; c += 4) {
                const auto four = [&](int i) {
                    const int row = first + half * LANES + i;
                    const auto* at = reinterpret_cast<const __m128i*>(x + row * stride + c);
                    return row < end ? _mm_loadu_si128(at) : _mm_setzero_si128();
                };
                put_across(four, words + c, half);
            }
    }

    static void keep(__m512 first, __m512 second, Line (&out)[KEPT]) { put(out[0], first), put(out[1], second); }

    static void plain(const Line (&words)[WORDS][2], Line (&out)[E][KEPT]) { std::memcpy(out, words, sizeof out); }

    template <int ROWS>
    static void laid(const __m512 (&x)[ROWS][2], Line (*out)[2]) {
        for (int i = 0; i < ROWS; ++i) keep(x[i][0], x[i][1], out[i]);
    }

    // Two rows, of which `count` are written.
    static void write_two(__m512 rows, float* out, int64_t stride, int count) {
        if (count > 0) _mm256_storeu_ps(out, _mm512_castps512_ps256(rows));
        if (count > 1) _mm256_storeu_ps(out + stride, _mm512_extractf32x8_ps(rows, 1));
    }

    // Sums of a block, in the order that `laid` has, to its rows, of which `count` are real.
    static void write(const Sums& sums, float factor, float* rows, int64_t stride, int count) {
        const __m512 by = _mm512_set1_ps(factor);
        for (int half = 0; half < 2; ++half)
            for (int c = 0; c < E; c += 4) {
                __m512i x[4];
                for (int i = 0; i < 4; ++i) x[i] = _mm512_castps_si512(_mm512_mul_ps(by, floats(sums[c + i][half])));
                turned(x);
                for (int i = 0; i < LANES; ++i) {
                    const int row = half * LANES + i;
                    if (row < count) put_row(x[i % 4], i / 4, rows + row * stride + c);
                }
            }
    }
};

// bfloat16, two in a lane.
struct Pairs {
    using Number = uint16_t;
    static constexpr int PAIR = 2, WORDS = E / 2, KEPT = 1, SHARE = 8;

    static __m512 dot(__m512 sum, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }

    // 2^x to 1e-4, a twentieth of what rounding to bfloat16 costs.
    static __m512 exp2(__m512 x, __mmask16 real) {
        constexpr int FRACTION = 0x09;  // what is above the next lower integer; the scale's exponent is that integer
        const __m512 r = _mm512_reduce_ps(x, FRACTION);
        __m512 p = _mm512_set1_ps(7.802452353e-2f);
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.260671607e-1f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.958335350e-1f));
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.999252195e-1f));
        return _mm512_maskz_scalef_ps(real, p, x);
    }

    static __m128i whole(const uint32_t (&row)[WORDS]) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row)); }
    static __m256 widened(const uint32_t (&row)[WORDS]) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(whole(row)), 16));
    }

    static void across(const uint16_t* x, int64_t stride, int first, int end, Line (&words)[WORDS][2]) {
        for (int half = 0; half < 2; ++half) {
            const auto four = [&](int i) {
                const int row = first + half * LANES + i;
                return row < end ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + row * stride)) : _mm_setzero_si128();
            };
            put_across(four, words, half);
        }
    }

    static __m512i rounded(__m512 first, __m512 second) { return (__m512i)_mm512_cvtne2ps_pbh(second, first); }
    static void keep(__m512 first, __m512 second, Line (&out)[KEPT]) { put(out[0], rounded(first, second)); }

    static void plain(const Line (&words)[WORDS][2], Line (&out)[E][KEPT]) {
        for (int c = 0; c < WORDS; ++c) {
            const __m512i a = bits(words[c][0]), b = bits(words[c][1]);
            put(out[2 * c][0], joined(_mm512_cvtepi32_epi16(a), _mm512_cvtepi32_epi16(b)));
            const __m512i odd_a = _mm512_srli_epi32(a, 16), odd_b = _mm512_srli_epi32(b, 16);
            put(out[2 * c + 1][0], joined(_mm512_cvtepi32_epi16(odd_a), _mm512_cvtepi32_epi16(odd_b)));
        }
    }

    // Pairs of rows, entry by entry.
    template <int ROWS>
    static void by_rows(const uint32_t (&rows)[ROWS][WORDS], uint32_t (&out)[ROWS / 2][E]) {
        for (int pair = 0; pair < ROWS / 2; ++pair) {
            const __m128i a = whole(rows[2 * pair]), b = whole(rows[2 * pair + 1]);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out[pair]), _mm_unpacklo_epi16(a, b));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out[pair] + E / 2), _mm_unpackhi_epi16(a, b));
        }
    }

    // The same of registers: in each quarter of 32 lanes the first four, then the last four.
    template <int ROWS>
    static void laid(const __m512 (&x)[ROWS][2], Line (*out)[2]) {
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i += 2) {
            const __m512i a = rounded(x[i][0], x[i][1]), b = rounded(x[i + 1][0], x[i + 1][1]);
            put(out[i / 2][0], _mm512_unpacklo_epi16(a, b));
            put(out[i / 2][1], _mm512_unpackhi_epi16(a, b));
        }
    }

    static void write_two(__m512 rows, uint16_t* out, int64_t stride, int count) {
        const __m256i both = (__m256i)_mm512_cvtneps_pbh(rows);
        if (count > 0) _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(both));
        if (count > 1) _mm_storeu_si128(reinterpret_cast<__m128i*>(out + stride), _mm256_extracti128_si256(both, 1));
    }

    // Half h of sums holds row 8 l + 4 h + m in lane 4 l + m. Rounded, both are quarters 2 h + l / 2 of one register, whose upper
    // halves have odd l.
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
            for (int i = 0; i < LANES; ++i) {
                const int quarter = i / 4, row = 8 * (2 * (quarter % 2) + odd) + 4 * (quarter / 2) + i % 4;
                if (row < count) put_row(x[i % 4], quarter, rows + row * stride);
            }
        }
    }
};

#endif

}  // namespace lanes
