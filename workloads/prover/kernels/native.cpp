// CPU kernels of the prover. Built by native.py.
//
// expand: one row after the other, from first goal to list of distinct, unvisited, canonical successors; nothing raw is
// ever written to memory. Atoms are (predicate, first, second); ids as in knowledge.py.
// activate: bias, ReLU, normalisation and residual of one layer in a single pass.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int ATOMS = 6;
constexpr int CAP = 119;
constexpr int MAX_BODY = 10;
constexpr int RAW = ATOMS + MAX_BODY - 1;
constexpr int HISTORY = 21;

struct Atom {
    int32_t p, a, b;
};

struct Base {
    const int32_t* facts;         // [F, 3] ascending
    const int64_t* keys;          // [F]
    const int32_t* swapped;       // [F] fact numbers by (predicate, second, first)
    const int64_t* swapped_keys;  // [F]
    const int64_t* fact_start;    // [P + 4]
    const int64_t* fact_count;
    const int32_t* heads;         // [R, 3]
    const int32_t* bodies;        // [R, longest, 3]
    const int64_t* body_length;   // [R]
    const int64_t* rule_start;    // [P + 4]
    const int64_t* rule_count;
    const int64_t* table;         // open addressing, -1 empty
    int64_t facts_total, longest, bits, multiplier, probes, base, constants;
};

struct Counts {
    int64_t fact_pairs, rule_pairs, rows;
};

inline int64_t key_of(const Base& kb, const Atom& atom) { return (atom.p * kb.base + atom.a) * kb.base + atom.b; }

inline bool is_fact(const Base& kb, int64_t key) {
    const int64_t mask = (int64_t{1} << kb.bits) - 1;
    const uint64_t product = static_cast<uint64_t>(key) * static_cast<uint64_t>(kb.multiplier);
    const int64_t slot = static_cast<int64_t>(product >> (64 - kb.bits));
    for (int64_t probe = 0; probe < kb.probes; ++probe) {
        const int64_t found = kb.table[(slot + probe) & mask];
        if (found == key) return true;
        if (found == -1) return false;
    }
    return false;
}

inline uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// The list of one row while it grows.
struct Row {
    const Base& kb;
    int64_t own;  // key of the query, which is no fact here
    Atom rest[ATOMS];
    int rest_count = 0;
    Atom found[CAP][ATOMS];
    int sizes[CAP];
    int count = 0;
    bool proof = false, overflow = false;

    bool ground(const Atom& atom) const { return atom.a <= kb.constants && atom.b <= kb.constants; }

    bool pruned(const Atom& atom) const {
        if (!ground(atom)) return false;
        const int64_t key = key_of(kb, atom);
        return key != own && is_fact(kb, key);
    }

    // A raw successor: prune, test for a proof, drop or keep. Beyond the cap only proofs still matter.
    void offer(const Atom* atoms, int total) {
        Atom kept[RAW];
        int left = 0;
        for (int i = 0; i < total; ++i) {
            if (pruned(atoms[i])) continue;
            if (overflow) return;
            kept[left++] = atoms[i];
        }
        if (left == 0) proof = true;
        if (left == 0 || left > ATOMS) return;
        if (count == CAP) {
            overflow = true;
            return;
        }
        std::copy(kept, kept + left, found[count]);
        sizes[count++] = left;
    }
};

// Whether some goal that is left stays one whatever the variables of the first goal become, so that no fact is a proof.
bool stays_open(const Row& row, const Atom& goal) {
    const auto settled = [&](int32_t term) { return term <= row.kb.constants || term == goal.a || term == goal.b; };
    for (int i = 0; i < row.rest_count; ++i) {
        const Atom& atom = row.rest[i];
        if (row.ground(atom) ? !row.pruned(atom) : !settled(atom.a) || !settled(atom.b)) return true;
    }
    return false;
}

inline int32_t replaced(int32_t term, int32_t from, int32_t to) { return from != 0 && term == from ? to : term; }

void with_rules(const Base& kb, const Atom& goal, Row& row, Counts& counts) {
    const int64_t start = kb.rule_start[goal.p], total = kb.rule_count[goal.p];
    counts.rule_pairs += total;
    for (int64_t rule = start; rule < start + total && !row.proof; ++rule) {
        const int32_t* head = kb.heads + rule * 3;
        int32_t a = goal.a, b = goal.b, from = 0, to = 0;
        if ((head[1] == 0) != (a == 0) || (head[2] == 0) != (b == 0)) continue;
        if (head[1] == head[2] && a != b) {  // a head variable that stands twice merges two terms
            if (b > kb.constants) { from = b; to = a; }
            else if (a > kb.constants) { from = a; to = b; }
            else continue;
            a = b = to;
        }
        Atom atoms[RAW];
        int total_atoms = 0;
        for (int64_t place = 0; place < kb.body_length[rule]; ++place) {
            const int32_t* atom = kb.bodies + (rule * kb.longest + place) * 3;
            int32_t terms[2];
            for (int i = 0; i < 2; ++i) {
                const int32_t term = atom[1 + i];
                terms[i] = term == 0 ? 0 : term == head[1] ? a : term == head[2] ? b : term + static_cast<int32_t>(kb.base) - 1;
            }
            atoms[total_atoms++] = {atom[0], terms[0], terms[1]};
        }
        for (int i = 0; i < row.rest_count; ++i) {
            const Atom& atom = row.rest[i];
            atoms[total_atoms++] = {atom.p, replaced(atom.a, from, to), replaced(atom.b, from, to)};
        }
        row.offer(atoms, total_atoms);
    }
}

void with_facts(const Base& kb, const Atom& goal, Row& row, Counts& counts) {
    const bool free_a = goal.a > kb.constants, free_b = goal.b > kb.constants;
    const int64_t prefix = goal.p * kb.base;
    int64_t low = prefix * kb.base, high = low + kb.base * kb.base;
    if (!free_a) {
        low = (prefix + goal.a) * kb.base + (free_b ? 0 : goal.b);
        high = low + (free_b ? kb.base : 1);
    } else if (!free_b) {
        low = (prefix + goal.b) * kb.base;
        high = low + kb.base;
    }
    const bool swapped = free_a && !free_b;
    const int64_t* keys = swapped ? kb.swapped_keys : kb.keys;
    // Keys of one predicate stand together: the search need not leave its range.
    const int64_t* first = keys + kb.fact_start[goal.p];
    const int64_t* last = first + kb.fact_count[goal.p];
    const int64_t* begin = std::lower_bound(first, last, low);
    const int64_t* end = std::lower_bound(begin, last, high);
    counts.fact_pairs += end - begin;
    const bool open = stays_open(row, goal);
    for (const int64_t* at = begin; at != end && !row.proof && !(open && row.overflow); ++at) {
        const int64_t number = swapped ? kb.swapped[at - keys] : at - keys;
        const int32_t* fact = kb.facts + number * 3;
        if (free_a && goal.a == goal.b && fact[1] != fact[2]) continue;
        if (kb.keys[number] == row.own) continue;
        Atom atoms[ATOMS];
        for (int i = 0; i < row.rest_count; ++i) {
            const Atom& atom = row.rest[i];
            const int32_t from_a = free_a ? goal.a : 0, from_b = free_b ? goal.b : 0;
            int32_t a = replaced(atom.a, from_a, fact[1]), b = replaced(atom.b, from_a, fact[1]);
            atoms[i] = {atom.p, replaced(a, from_b, fact[2]), replaced(b, from_b, fact[2])};
        }
        row.offer(atoms, row.rest_count);
    }
}

// Rename variables by first appearance and hash on the way.
uint64_t canonical(const Base& kb, Atom* atoms, int total) {
    int32_t names[2 * ATOMS];
    int named = 0;
    auto rename = [&](int32_t term) {
        if (term <= kb.constants) return term;
        int place = 0;
        while (place < named && names[place] != term) ++place;
        if (place == named) names[named++] = term;
        return static_cast<int32_t>(kb.constants) + 1 + place;
    };
    uint64_t hash = 0;
    for (int i = 0; i < total; ++i) {
        atoms[i].a = rename(atoms[i].a);
        atoms[i].b = rename(atoms[i].b);
        hash = mix(hash ^ static_cast<uint64_t>(key_of(kb, atoms[i])));
    }
    return hash;
}

bool among(const int64_t* hashes, int64_t total, int64_t hash) {
    for (int64_t i = 0; i < total; ++i)
        if (hashes[i] == hash) return true;
    return false;
}

template <typename T>
int64_t expand(const Base& kb, int64_t rows, const T* current, const T* excluded, const int64_t* history,
               const int64_t* stored, const uint8_t* done, T* states, int64_t* hashes, int64_t* owner, int64_t* count,
               uint8_t* proof, uint8_t* overflow, Counts& counts) {
    int64_t total = 0;
    for (int64_t r = 0; r < rows; ++r) {
        count[r] = proof[r] = overflow[r] = 0;
        if (done[r]) continue;
        counts.rows++;
        const T* state = current + r * ATOMS * 3;
        const T* query = excluded + r * 3;
        Row row{kb, key_of(kb, {static_cast<int32_t>(query[0]), static_cast<int32_t>(query[1]), static_cast<int32_t>(query[2])})};
        for (int i = 1; i < ATOMS && state[i * 3] != 0; ++i)
            row.rest[row.rest_count++] = {static_cast<int32_t>(state[i * 3]), static_cast<int32_t>(state[i * 3 + 1]),
                                          static_cast<int32_t>(state[i * 3 + 2])};
        const Atom goal{static_cast<int32_t>(state[0]), static_cast<int32_t>(state[1]), static_cast<int32_t>(state[2])};
        with_rules(kb, goal, row, counts);
        with_facts(kb, goal, row, counts);
        proof[r] = row.proof;
        if (row.proof) continue;
        overflow[r] = row.overflow;
        const int64_t begin = total;
        for (int i = 0; i < row.count; ++i) {
            const int64_t hash = static_cast<int64_t>(canonical(kb, row.found[i], row.sizes[i]));
            if (among(hashes + begin, total - begin, hash) || among(history + r * HISTORY, stored[r], hash)) continue;
            T* out = states + total * ATOMS * 3;
            std::memset(out, 0, sizeof(T) * ATOMS * 3);
            for (int k = 0; k < row.sizes[i]; ++k) {
                out[k * 3] = static_cast<T>(row.found[i][k].p);
                out[k * 3 + 1] = static_cast<T>(row.found[i][k].a);
                out[k * 3 + 2] = static_cast<T>(row.found[i][k].b);
            }
            hashes[total] = hash;
            owner[total++] = r;
        }
        count[r] = total - begin;
    }
    return total;
}

inline float from_bf16(uint16_t x) {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint16_t to_bf16(float x) {  // round to nearest even; there are no NaNs here
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float as_float(float x) { return x; }
inline float as_float(uint16_t x) { return from_bf16(x); }
inline void put(float& out, float x) { out = x; }
inline void put(uint16_t& out, float x) { out = to_bf16(x); }

constexpr int64_t WIDEST = 4096;

// One row: r = relu(product + bias), normalised, scaled, added to the residual x; `next` is what the next product reads.
template <typename T>
inline void activate_row(const float* r, const float* scale, const float* shift, int64_t width, bool residual, float* x, T* next) {
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < width; ++i) sum += r[i];
    const float mean = sum / width;
    float square = 0.0f;
#pragma omp simd reduction(+ : square)
    for (int64_t i = 0; i < width; ++i) square += (r[i] - mean) * (r[i] - mean);
    const float factor = 1.0f / std::sqrt(square / width + 1e-5f);
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
        const float value = (r[i] - mean) * factor * scale[i] + shift[i];
        x[i] = residual ? x[i] + value : value;
    }
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) put(next[i], x[i]);
}

template <typename T>
void activate(int64_t rows, int64_t width, const T* product, const float* bias, const float* scale, const float* shift,
              bool residual, float* x, T* next) {
    float r[WIDEST];
    for (int64_t row = 0; row < rows; ++row) {
        const T* y = product + row * width;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) {
            const float value = as_float(y[i]) + bias[i];
            r[i] = value > 0.0f ? value : 0.0f;
        }
        activate_row(r, scale, shift, width, residual, x + row * width, next + row * width);
    }
}

// The first layer from folded tables: sum over real slots k of decay^k (P[p] + U[a] + V[b]), then as
// `activate`.
template <typename I, typename T>
void first(int64_t rows, int64_t width, const I* states, const float* table, int64_t u, int64_t v, float decay,
           const float* bias, const float* scale, const float* shift, float* x, T* next) {
    float r[WIDEST];
    for (int64_t row = 0; row < rows; ++row) {
        const I* state = states + row * ATOMS * 3;
        std::copy(bias, bias + width, r);
        float weight = 1.0f;
        for (int k = 0; k < ATOMS && state[k * 3] != 0; ++k, weight *= decay) {
            const float* p = table + static_cast<int64_t>(state[k * 3]) * width;
            const float* a = table + (u + state[k * 3 + 1]) * width;
            const float* b = table + (v + state[k * 3 + 2]) * width;
#pragma omp simd
            for (int64_t i = 0; i < width; ++i) r[i] += weight * (p[i] + a[i] + b[i]);
        }
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) r[i] = r[i] > 0.0f ? r[i] : 0.0f;
        activate_row(r, scale, shift, width, false, x + row * width, next + row * width);
    }
}

template <typename T>
void dots(int64_t rows, int64_t width, const T* values, const float* keys, const float* offset, const int64_t* owner,
          float* out) {
    for (int64_t row = 0; row < rows; ++row) {
        const T* value = values + row * width;
        const float* key = keys + owner[row] * width;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; ++i) sum += as_float(value[i]) * key[i];
        out[row] = sum + offset[owner[row]];
    }
}

}  // namespace

extern "C" {

int64_t expand_i16(const Base* kb, int64_t rows, const int16_t* current, const int16_t* excluded, const int64_t* history,
                   const int64_t* stored, const uint8_t* done, int16_t* states, int64_t* hashes, int64_t* owner,
                   int64_t* count, uint8_t* proof, uint8_t* overflow, Counts* counts) {
    return expand(*kb, rows, current, excluded, history, stored, done, states, hashes, owner, count, proof, overflow, *counts);
}
int64_t expand_i32(const Base* kb, int64_t rows, const int32_t* current, const int32_t* excluded, const int64_t* history,
                   const int64_t* stored, const uint8_t* done, int32_t* states, int64_t* hashes, int64_t* owner,
                   int64_t* count, uint8_t* proof, uint8_t* overflow, Counts* counts) {
    return expand(*kb, rows, current, excluded, history, stored, done, states, hashes, owner, count, proof, overflow, *counts);
}
int64_t expand_i64(const Base* kb, int64_t rows, const int64_t* current, const int64_t* excluded, const int64_t* history,
                   const int64_t* stored, const uint8_t* done, int64_t* states, int64_t* hashes, int64_t* owner,
                   int64_t* count, uint8_t* proof, uint8_t* overflow, Counts* counts) {
    return expand(*kb, rows, current, excluded, history, stored, done, states, hashes, owner, count, proof, overflow, *counts);
}

void activate_f32(int64_t rows, int64_t width, const float* product, const float* bias, const float* scale,
                  const float* shift, int residual, float* x, float* next) {
    activate(rows, width, product, bias, scale, shift, residual != 0, x, next);
}
void activate_bf16(int64_t rows, int64_t width, const uint16_t* product, const float* bias, const float* scale,
                   const float* shift, int residual, float* x, uint16_t* next) {
    activate(rows, width, product, bias, scale, shift, residual != 0, x, next);
}

void dots_f32(int64_t rows, int64_t width, const float* values, const float* keys, const float* offset,
              const int64_t* owner, float* out) {
    dots(rows, width, values, keys, offset, owner, out);
}
void dots_bf16(int64_t rows, int64_t width, const uint16_t* values, const float* keys, const float* offset,
               const int64_t* owner, float* out) {
    dots(rows, width, values, keys, offset, owner, out);
}

#define FIRST(NAME, INDEX, TYPE)                                                                                          \
    void NAME(int64_t rows, int64_t width, const INDEX* states, const float* table, int64_t u, int64_t v, float decay,    \
              const float* bias, const float* scale, const float* shift, float* x, TYPE* next) {                         \
        first(rows, width, states, table, u, v, decay, bias, scale, shift, x, next);                                     \
    }
FIRST(first_i16_f32, int16_t, float)
FIRST(first_i32_f32, int32_t, float)
FIRST(first_i64_f32, int64_t, float)
FIRST(first_i16_bf16, int16_t, uint16_t)
FIRST(first_i32_bf16, int32_t, uint16_t)
FIRST(first_i64_bf16, int64_t, uint16_t)
}
