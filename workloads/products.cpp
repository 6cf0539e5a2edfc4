// PyTorch's products of float32, float64 and bfloat16 matrices on CPUs, made by `products.h` and `half_products.h` between
// `products_begin` and `products_end`. What those have no code for goes where it went before: other types, tiny or strangely
// strided matrices, several threads, and bfloat16 where the library has matrix tiles (AMX) for it.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>

#include "half_products.h"
#include "products.h"

namespace {

using at::Scalar;
using at::Tensor;
using products::View;

int64_t made = 0;
int inside = 0;

#if defined(__AMX_BF16__)
constexpr bool HALVES = false;
#else
constexpr bool HALVES = true;
#endif
constexpr int64_t FEWEST = 8;  // rows and columns: packing costs as much as a product with few rows

// The last two dimensions of a tensor.
struct Matrix {
    int64_t rows, columns, row, column;

    explicit Matrix(const Tensor& t)
        : rows(t.size(-2)), columns(t.size(-1)), row(t.stride(-2)), column(t.stride(-1)) {}
    bool straight() const { return row == 1 || column == 1; }
};

bool ours(const Tensor& a, const Tensor& b, int64_t dimensions) {
    if (!inside) return false;
    const auto type = a.scalar_type();
    if (type != at::kFloat && type != at::kDouble && (type != at::kBFloat16 || !HALVES)) return false;
    if (b.scalar_type() != type) return false;
    if (a.dim() != dimensions || b.dim() != dimensions || at::get_num_threads() > 1) return false;
    if (a.size(-1) != b.size(-2) || (dimensions == 3 && a.size(0) != b.size(0))) return false;  // the library says what is wrong
    return a.size(-2) >= FEWEST && b.size(-1) >= FEWEST && a.size(-1) > 0 && Matrix(a).straight() && Matrix(b).straight();
}

bool holds(const Tensor& out, const Tensor& a, const Tensor& b) {
    if (out.scalar_type() != a.scalar_type() || out.dim() != a.dim() || out.stride(-1) != 1) return false;
    if (out.size(-2) != a.size(-2) || out.size(-1) != b.size(-1) || (a.dim() == 3 && out.size(0) != a.size(0))) return false;
    return !out.is_alias_of(a) && !out.is_alias_of(b);
}

// out = or += a b + bias, where `bias` is null or has numbers of a row side by side. T is what PyTorch calls N.
template <class N, class T = N>
void product(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor* bias, bool add) {
    const Matrix left(a), right(b), to(out);
    const bool many = a.dim() == 3;
    for (int64_t i = 0; i < (many ? a.size(0) : 1); ++i) {
        const auto at = [i](const Tensor& t, bool many) {
            return reinterpret_cast<T*>(t.data_ptr<N>() + (many ? i * t.stride(0) : 0));
        };
        const T* first = bias ? at(*bias, many && bias->dim() == 3) : nullptr;
        products::multiply(left.rows, right.columns, left.columns, View<T>{at(a, many), left.row, left.column},
                           View<T>{at(b, many), right.row, right.column}, at(out, many), to.row, add, first);
    }
    ++made;
}

Tensor& multiply(const Tensor& a, const Tensor& b, Tensor& out, const Tensor* bias = nullptr, bool add = false) {
    if (a.scalar_type() == at::kFloat) product<float>(a, b, out, bias, add);
    else if (a.scalar_type() == at::kBFloat16) product<at::BFloat16, products::Half>(a, b, out, bias, add);
    else product<double>(a, b, out, bias, add);
    return out;
}

Tensor fresh(const Tensor& a, const Tensor& b) {
    return a.dim() == 3 ? at::empty({a.size(0), a.size(1), b.size(2)}, a.options())
                        : at::empty({a.size(0), b.size(1)}, a.options());
}

Tensor mm(const Tensor& a, const Tensor& b) {
    if (!ours(a, b, 2)) return at::cpu::mm(a, b);
    Tensor out = fresh(a, b);
    return multiply(a, b, out);
}

Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
    return ours(a, b, 2) && holds(out, a, b) ? multiply(a, b, out) : at::cpu::mm_outf(a, b, out);
}

Tensor bmm(const Tensor& a, const Tensor& b) {
    if (!ours(a, b, 3)) return at::cpu::bmm(a, b);
    Tensor out = fresh(a, b);
    return multiply(a, b, out);
}

Tensor& bmm_out(const Tensor& a, const Tensor& b, Tensor& out) {
    return ours(a, b, 3) && holds(out, a, b) ? multiply(a, b, out) : at::cpu::bmm_outf(a, b, out);
}

// Whether each row of a product can begin at the same row of `bias`.
bool one_row(const Tensor& bias, const Tensor& a, const Tensor& b) {
    if (bias.scalar_type() != a.scalar_type() || bias.dim() == 0 || bias.size(-1) != b.size(-1)) return false;
    if (bias.stride(-1) != 1 || (bias.dim() > 1 && bias.size(-2) != 1 && bias.stride(-2) != 0)) return false;
    return bias.dim() < 3 || (a.dim() == 3 && bias.size(0) == a.size(0));
}

bool plain(const Scalar& beta, const Scalar& alpha) { return beta.toDouble() == 1.0 && alpha.toDouble() == 1.0; }

Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
    if (!ours(a, b, 2) || !plain(beta, alpha) || !one_row(bias, a, b)) return at::cpu::addmm(bias, a, b, beta, alpha);
    Tensor out = fresh(a, b);
    return multiply(a, b, out, &bias);
}

Tensor& addmm_out(const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Tensor& out) {
    if (!ours(a, b, 2) || !plain(beta, alpha) || !holds(out, a, b)) return at::cpu::addmm_outf(bias, a, b, beta, alpha, out);
    if (bias.is_same(out)) return multiply(a, b, out, nullptr, true);
    if (!one_row(bias, a, b) || bias.is_alias_of(out)) return at::cpu::addmm_outf(bias, a, b, beta, alpha, out);
    return multiply(a, b, out, &bias);
}

Tensor baddbmm(const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
    if (!ours(a, b, 3) || !plain(beta, alpha) || !one_row(bias, a, b)) return at::cpu::baddbmm(bias, a, b, beta, alpha);
    Tensor out = fresh(a, b);
    return multiply(a, b, out, &bias);
}

Tensor& baddbmm_out(const Tensor& bias, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Tensor& out) {
    if (!ours(a, b, 3) || !plain(beta, alpha) || !holds(out, a, b) || !one_row(bias, a, b) || bias.is_alias_of(out))
        return at::cpu::baddbmm_outf(bias, a, b, beta, alpha, out);
    return multiply(a, b, out, &bias);
}

// Says nothing: that kernels are overridden is what was asked for.
struct Quiet : c10::WarningHandler {
    void process(const c10::Warning&) override {}
};

std::unique_ptr<torch::Library> registered;
int users = 0;

}  // namespace

extern "C" {

// Stand before PyTorch's own until `products_leave` has been called as often.
void products_enter() {
    if (users++ > 0) return;
    Quiet quiet;
    const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    registered = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    registered->impl("mm", mm);
    registered->impl("mm.out", mm_out);
    registered->impl("bmm", bmm);
    registered->impl("bmm.out", bmm_out);
    registered->impl("addmm", addmm);
    registered->impl("addmm.out", addmm_out);
    registered->impl("baddbmm", baddbmm);
    registered->impl("baddbmm.out", baddbmm_out);
}

void products_leave() {
    if (--users == 0) registered.reset();
}

void products_begin() { ++inside; }

void products_end() { --inside; }

int64_t products_made() { return made; }

bool products_take_bfloat16() { return HALVES; }
}
