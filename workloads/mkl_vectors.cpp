// In the place of two functions by which MKL asks for the processor's maker. Of others than Intel it takes vectors half
// as wide as some of them have, and no variable changes that.

static long asked_count = 0;

extern "C" int mkl_serv_intel_cpu_true() {
    ++asked_count;
    return 1;
}

extern "C" int mkl_serv_intel_cpu() {
    ++asked_count;
    return 1;
}

extern "C" long mkl_vectors_asked() { return asked_count; }
