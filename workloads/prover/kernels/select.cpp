// What follows the scores: the greedy choice by the tie rule and the move of each row, in place. Rows that are done or wait
// are passed over. Built by native.py.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

struct Rows {
    uint8_t* current;
    int64_t *history, *stored, *depth;
    uint8_t *done, *success;
    float* log_prob;
    uint8_t* ambiguous;
    int16_t* actions;
    float* value;
};

struct Lists {  // ragged: the successors of a row behind those of the row before
    const uint8_t* states;
    const int64_t *hashes, *count;
    const uint8_t *proof, *overflow, *waits;
};

struct Scores {
    const float *logits, *last;
    const float* values;
    const int64_t* place;  // of each successor among the values; null: its own number
};

struct Sizes {
    int64_t rows, state_bytes, width, entries, depth;
    float tau, doubt;
};

struct Counts {
    int64_t live, successors, overflow, deferred;
};

struct Choice {
    int64_t column;
    float log_prob;
    bool ambiguous;
};

// The first action within tau of the best; `logits` has `count` of them and `last` one more.
Choice choose(const float* logits, int64_t count, float last, float tau, float doubt) {
    float top = last;
    for (int64_t i = 0; i < count; ++i) top = logits[i] > top ? logits[i] : top;
    const float margin = doubt * (1.0f + std::fabs(top));
    Choice found{-1, 0.0f, false};
    float weight = 0.0f;
    for (int64_t i = 0; i <= count; ++i) {
        const float gap = top - (i < count ? logits[i] : last);
        if (std::fabs(gap - tau) < margin) found.ambiguous = true;
        if (gap <= tau) {
            weight += 1.0f;
            if (found.column < 0) found.column = i;
        } else {
            weight += std::exp(-gap);
        }
    }
    found.log_prob = -std::log(weight);
    return found;
}

enum Kind { NONE = 0, PROVED = 1, FAILED = 2, ENDED = 3 };

}  // namespace

extern "C" void move_on(const Rows* given, const Lists* lists, const Scores* scores, const Sizes* sizes, Counts* counts) {
    const Rows& rows = *given;
    int64_t start = 0;
    for (int64_t r = 0; r < sizes->rows; start += lists->count[r++]) {
        if (rows.done[r]) continue;
        if (lists->waits[r]) {
            counts->deferred++;
            continue;
        }
        const int64_t count = lists->count[r];
        counts->live++;
        counts->successors += count;
        counts->overflow += lists->overflow[r];
        const bool proof = lists->proof[r], forced = proof || count == 0;
        Choice choice{count, 0.0f, false};
        if (!forced) choice = choose(scores->logits + start, count, scores->last[r], sizes->tau, sizes->doubt);
        const Kind kind = choice.column < count ? NONE : proof ? PROVED : count == 0 ? FAILED : ENDED;
        const int64_t depth = rows.depth[r]++;
        rows.actions[r * sizes->depth + depth] = static_cast<int16_t>(choice.column);
        rows.log_prob[r] += choice.log_prob;
        rows.ambiguous[r] |= choice.ambiguous;
        rows.success[r] |= kind == PROVED;
        rows.done[r] = kind != NONE || depth + 1 >= sizes->depth;
        if (kind != NONE) continue;
        const int64_t at = start + choice.column;
        std::memcpy(rows.current + r * sizes->state_bytes, lists->states + at * sizes->state_bytes, sizes->state_bytes);
        rows.history[r * sizes->entries + rows.stored[r]++] = lists->hashes[at];
        if (sizes->width > 0) {
            const int64_t place = scores->place ? scores->place[at] : at;
            std::memcpy(rows.value + r * sizes->width, scores->values + place * sizes->width, sizes->width * sizeof(float));
        }
    }
}
