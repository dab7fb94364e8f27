/* The reader of rows for x86-64 processors with AVX2, which go through text 32 bytes at a time. */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,bmi")
#include "_row.h"

row_reader row_reader_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") ? row_read : NULL;
}
#else
#include "_row.h"

row_reader row_reader_avx2(void) {
    (void)row_read;
    return NULL;
}
#endif
