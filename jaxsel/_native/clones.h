// Functions compiled for several instruction sets, of which the machine's is called.

#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define JAXSEL_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define JAXSEL_CLONES
#endif
