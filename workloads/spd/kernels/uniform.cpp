// Uniform numbers as PyTorch's generator for CPUs draws them (MT19937: Matsumoto and Nishimura 1998), to the bit, with the
// recurrence and the tempering in vectors. Built by native.py.

#include <algorithm>
#include <cstdint>

namespace {

constexpr int WORDS = 624, AHEAD = 397;

inline uint32_t twisted(uint32_t one, uint32_t next) {
    return ((one & 0x80000000u) | (next & 0x7fffffffu)) >> 1 ^ (next & 1u ? 0x9908b0dfu : 0u);
}

// The next 624 words. A vector never reads what it has yet to write: its source lies 227 words back.
void advance(uint32_t* state) {
#pragma omp simd
    for (int i = 0; i < WORDS - AHEAD; ++i) state[i] = state[i + AHEAD] ^ twisted(state[i], state[i + 1]);
#pragma omp simd safelen(64)
    for (int i = WORDS - AHEAD; i < WORDS - 1; ++i) state[i] = state[i + AHEAD - WORDS] ^ twisted(state[i], state[i + 1]);
    state[WORDS - 1] = state[AHEAD - 1] ^ twisted(state[WORDS - 1], state[0]);
}

inline uint32_t tempered(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

// 24 bits of a word.
void take(const uint32_t* words, int64_t count, float* out) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(tempered(words[i]) & 0xffffffu) * 0x1p-24f;
}

inline double unit(uint32_t high, uint32_t low) {
    return static_cast<double>(((static_cast<uint64_t>(high) << 32) | low) & ((uint64_t(1) << 53) - 1)) * 0x1p-53;
}

// Words of a generator that have not been drawn yet are the last `left` of `state`.
struct Words {
    uint32_t* state;
    int64_t left;

    uint32_t next() {
        if (left == 0) refill();
        return tempered(state[WORDS - left--]);
    }
    void refill() {
        advance(state);
        left = WORDS;
    }
};

}  // namespace

extern "C" {

// Fill `out`, from `left` undrawn words of `state` [624] on; the number of words that are left then.
int64_t uniform_f32(uint32_t* state, int64_t left, int64_t count, float* out) {
    Words words = {state, left};
    while (count > 0) {
        if (words.left == 0) words.refill();
        const int64_t here = std::min(count, words.left);
        take(state + WORDS - words.left, here, out);
        words.left -= here, out += here, count -= here;
    }
    return words.left;
}

// 53 bits of two words each.
int64_t uniform_f64(uint32_t* state, int64_t left, int64_t count, double* out) {
    Words words = {state, left};
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t high = words.next(), low = words.next();
        out[i] = unit(high, low);
    }
    return words.left;
}
}
