// The exponential of what is not above zero, written so that compilers put it into vectors.
#pragma once

#include <cstdint>
#include <cstring>

// exp(y) for y <= 0: 2^k times a polynomial on |r| <= ln 2 / 2 (Cephes' coefficients for float, Taylor for double).
inline float exp_negative(float y) {
    y = y < -87.0f ? -87.0f : y;
    const float shifted = y * 1.44269504088896341f + 12582912.0f;  // rounds to the nearest integer in the low bits
    const float k = shifted - 12582912.0f;
    const float r = (y - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const int32_t scale = (static_cast<int32_t>(k) + 127) << 23;
    float factor;
    std::memcpy(&factor, &scale, sizeof factor);
    return p * factor;
}

// 2^y for y <= 0, which needs no reduction: 2^k times a polynomial on |r| <= 1/2, by Remez, good to 1.3 roundings.
inline float exp2_negative(float y) {
    y = y > -125.0f ? y : -125.0f;
    const float shifted = y + 12582912.0f;  // rounds to the nearest integer k in the low bits
    const float r = y - (shifted - 12582912.0f), rr = r * r;
    float p = (1.3276470117e-3f * r + 9.6755413195e-3f) * rr + (5.5507132793e-2f * r + 2.4022119724e-1f);
    p = p * rr + (6.9314696706e-1f * r + 1.0000000717f);
    uint32_t bits, k;
    std::memcpy(&bits, &p, sizeof bits);
    std::memcpy(&k, &shifted, sizeof k);
    bits += k << 23;
    std::memcpy(&p, &bits, sizeof p);
    return p;
}

inline double exp_negative(double y) {
    y = y < -700.0 ? -700.0 : y;
    const double shifted = y * 1.4426950408889634 + 6755399441055744.0;
    const double k = shifted - 6755399441055744.0;
    const double r = (y - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
    double p = 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    int64_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);  // the integer k sits in the low bits of the shifted sum
    const int64_t scale = (bits + 1023) << 52;
    double factor;
    std::memcpy(&factor, &scale, sizeof factor);
    return p * factor;
}
