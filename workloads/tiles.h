// Matrix tiles of x86 processors (AMX): what kernels that use them share.
#pragma once

#include <cstdint>

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define HAS_TILES 1
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tiles {

constexpr int TILE = 16;   // rows, and float32 columns
constexpr int DEPTH = 32;  // bfloat16 columns
constexpr int BYTES = 64;  // of a row

// Whether this process may use tiles: what is built here is for this processor, and Linux hands out the registers on request.
inline bool usable() {
#ifdef HAS_TILES
    constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

#ifdef HAS_TILES

// Eight tiles of 16 rows and 64 bytes. A constant in memory: GCC does not know how many of its bytes ldtilecfg reads.
struct alignas(64) Palette {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t bytes[16] = {BYTES, BYTES, BYTES, BYTES, BYTES, BYTES, BYTES, BYTES};
    uint8_t rows[16] = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE};
};
inline const volatile Palette PALETTE;

// The tiles of this thread from here to the end of the scope.
struct Scope {
    Scope() { _tile_loadconfig(const_cast<const Palette*>(&PALETTE)); }
    ~Scope() { _tile_release(); }
    Scope(const Scope&) = delete;
};

// Nor does GCC know that tiles are loaded from memory: what was stored has to be there by then.
inline void settle() { asm volatile("" ::: "memory"); }

#endif

}  // namespace tiles
