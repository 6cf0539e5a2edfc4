// Products of pairs of bfloat16 (AVX512-BF16): what kernels that use them share. A lane multiplies two pairs and adds both
// products to a float32.
#pragma once

#include <cstdint>

#if defined(__AVX512BF16__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HAS_PAIRS 1
#include <immintrin.h>
#endif

namespace pairs {

inline bool usable() {
#ifdef HAS_PAIRS
    return true;  // what is built here is for this processor
#else
    return false;
#endif
}

#ifdef HAS_PAIRS

constexpr int LANES = 16;

struct alignas(64) Line {
    uint32_t word[LANES];
};

inline __m512i bits(const Line& line) { return _mm512_load_si512(&line); }
inline __m512 floats(const Line& line) { return _mm512_load_ps(&line); }
inline void put(Line& line, __m512i value) { _mm512_store_si512(&line, value); }
inline void put(Line& line, __m512 value) { _mm512_store_ps(&line, value); }
inline __m512 dot(__m512 sum, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
inline __m512i everywhere(uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }

// Both registers as 32 numbers of bfloat16, `first` before `second`.
inline __m512i rounded(__m512 first, __m512 second) { return (__m512i)_mm512_cvtne2ps_pbh(second, first); }

// Halves of a register.
inline __m256i joined(__m128i first, __m128i second) { return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1); }
inline __m512i joined(__m256i first, __m256i second) { return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1); }

inline __m512 by_halves(float first, float second) {
    return _mm512_insertf32x8(_mm512_set1_ps(first), _mm256_set1_ps(second), 1);
}

// Eight numbers of row `row`, zero from row `end` on.
inline __m128i row_of(const uint16_t* x, int64_t stride, int row, int end) {
    return row < end ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + row * stride)) : _mm_setzero_si128();
}

// Two registers of 32 numbers as pairs: in each quarter the first four, then the last four.
inline void laid(__m512i a, __m512i b, Line (&out)[2]) {
    put(out[0], _mm512_unpacklo_epi16(a, b));
    put(out[1], _mm512_unpackhi_epi16(a, b));
}

// The sum of a row's eight products.
inline float product(__m128i a, __m256 b) {
    const __m256 x = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(a), 16)), b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float squared(__m128i a) { return product(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(a), 16))); }

// 2^x to 1e-4, a twentieth of what rounding to bfloat16 costs; zero in lanes that are not real. What is not a number stays so.
inline __m512 exp2_of(__m512 x, __mmask16 real) {
    constexpr int FRACTION = 0x09;  // what is above the next lower integer; the scale's exponent is that integer
    const __m512 r = _mm512_reduce_ps(x, FRACTION);
    __m512 p = _mm512_set1_ps(7.802452353e-2f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.260671607e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.958335350e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.999252195e-1f));
    return _mm512_maskz_scalef_ps(real, p, x);
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

#endif

}  // namespace pairs
