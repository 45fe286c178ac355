/* OpenBLAS's sgemv, for comparison: loaded at run time, so that the build needs only a C compiler.
 * Reads lines "LAYOUT SIZE WARM TIMES" (layout r or c), answers "NANOSECONDS SUM": what TIMES calls took after WARM that were not timed, and the
 * sum of the result's elements.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

typedef void sgemv(int order, int transposed, int rows, int columns, float alpha, const float *a, int stride, const float *x, int step,
                   float beta, float *y, int step_y);
typedef char *config(void);

/* SciPy wheels prefix each name. */
static void *symbol(void *library, const char *name) {
    char prefixed[64];
    void *found = dlsym(library, name);
    if (found) return found;
    snprintf(prefixed, sizeof prefixed, "scipy_%s", name);
    return dlsym(library, prefixed);
}

/* On huge pages if available, like the other matrices. */
static float *numbers(size_t count) {
    size_t huge = (size_t)2 << 20, bytes = (count * sizeof(float) + huge - 1) / huge * huge;
    float *memory = aligned_alloc(huge, bytes);
    if (!memory) {
        puts("no memory");
        exit(1);
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

int main(int argc, char **argv) {
    const char *file = argc > 1 ? argv[1] : "libopenblas.so.0";
    void *library = dlopen(file, RTLD_NOW);
    if (!library) {
        printf("%s\n", dlerror());
        return 1;
    }
    sgemv *call = (sgemv *)symbol(library, "cblas_sgemv");
    if (!call) {
        printf("%s has no cblas_sgemv\n", file);
        return 1;
    }
    config *version = (config *)symbol(library, "openblas_get_config");
    printf("ready %s\n", version ? version() : file);
    fflush(stdout);
    char layout;
    int size, made = 0;
    long warm, times;
    float *by[2] = {NULL, NULL}, *x = NULL, *y = NULL;
    while (scanf(" %c %d %ld %ld", &layout, &size, &warm, &times) == 4) {
        if (size != made) {
            free(by[0]), free(by[1]), free(x), free(y);
            by[0] = numbers((size_t)size * size), by[1] = numbers((size_t)size * size), x = numbers(size), y = numbers(size);
            for (size_t row = 0; row < (size_t)size; row++) {
                for (size_t column = 0; column < (size_t)size; column++) {
                    float value = (float)((row * 31 + column * 17) % 101) / 50.0f - 1.0f;
                    by[0][row * size + column] = by[1][column * size + row] = value;
                }
                x[row] = 0.5f;
            }
            made = size;
        }
        struct timespec begin, end;
        int order = layout == 'r' ? 101 : 102;
        const float *a = by[layout != 'r'];
        for (long time = 0; time < warm; time++) call(order, 111, size, size, 1.0f, a, size, x, 1, 0.0f, y, 1);
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (long time = 0; time < times; time++) call(order, 111, size, size, 1.0f, a, size, x, 1, 0.0f, y, 1);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double sum = 0;
        for (int row = 0; row < size; row++) sum += y[row];
        printf("%lld %.9g\n", (end.tv_sec - begin.tv_sec) * 1000000000LL + (end.tv_nsec - begin.tv_nsec), sum);
        fflush(stdout);
    }
    return 0;
}
