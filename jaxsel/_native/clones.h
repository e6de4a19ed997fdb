// Functions compiled for several instruction sets, of which the machine's is called.

#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define JAXSEL_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define JAXSEL_CLONES
#endif

// For templates, which a compiled set of instructions must not call but take in.
#ifdef __GNUC__
#define JAXSEL_INLINE inline __attribute__((always_inline))
#else
#define JAXSEL_INLINE inline
#endif
