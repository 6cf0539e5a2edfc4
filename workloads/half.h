// A bfloat16: the upper half of a float32.
#pragma once

#include <cstdint>
#include <cstring>

namespace bfloat {

struct Half {
    uint16_t bits;
};

inline float widened(Half value) {
    const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

// To the nearest, of two equally near to the even one; any NaN to one NaN.
inline Half rounded(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t up = bits + 0x7fff + (bits >> 16 & 1);
    return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : up >> 16)};
}

}  // namespace bfloat
