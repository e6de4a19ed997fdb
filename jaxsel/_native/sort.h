// The order of floats.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "clones.h"

namespace {

// An unsigned integer that sorts as the float does (-0 and 0 alike, NaN last). By bits
// alone: XLA's threads take denormal operands of float arithmetic for 0.
inline uint32_t SortKey(float value) {
  constexpr uint32_t kSign = uint32_t{1} << 31, kInfinity = 0x7f800000;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  // Masks, not branches, so that loops over rows are vectorized.
  const uint32_t none = 0 - static_cast<uint32_t>((bits & ~kSign) > kInfinity);
  bits ^= bits == kSign ? kSign : 0;
  return bits ^ (0 - (bits >> 31) | kSign) | none;
}

constexpr int kBits = 11;  // three passes; 2048 counters stay in the first cache
constexpr uint32_t kBuckets = 1u << kBits, kMask = kBuckets - 1;

// Memory that is written before it is read: `std::vector` would write zeros first. In
// large pages where the system has them, since most of what a page costs is per page.
class Pairs {
 public:
  void resize(int64_t n) {
    if (n <= size_) return;
    values_.reset();  // before there is more: not both at once
    values_.reset(new uint64_t[n]);
    size_ = n;
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t kPage = uintptr_t{1} << 21;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(values_.get());
    const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
    const uintptr_t last = (begin + n * sizeof(uint64_t)) / kPage * kPage;
    if (first < last) {
      madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
    }
#endif
  }
  uint64_t& operator[](int64_t i) { return values_[i]; }

 private:
  std::unique_ptr<uint64_t[]> values_;
  int64_t size_ = 0;
};

struct SortScratch {
  Pairs a, b;
  std::vector<uint32_t> count;
  std::vector<uint32_t> keys, first, second;
};

// Whether the point at each rank is as far as the one before; one place more than ranks.
using Ties = std::vector<uint8_t>;

// In short rows, one word holds an index and the first bits of a key: two digits.
constexpr int kDigit = 9, kIndex = 32 - 2 * kDigit;
constexpr int64_t kShort = int64_t{1} << kIndex;
constexpr uint32_t kDigits = 1u << kDigit, kLower = kDigits - 1;
// Distances that are wider apart than four octaves leave too few first bits to tell.
constexpr uint32_t kWidest = uint32_t{4} << 23;

struct Span {
  uint32_t low, high;
};

JAXSEL_CLONES Span WriteKeys(const float* __restrict row, int64_t n,
                             uint32_t* __restrict keys) {
  uint32_t low = ~uint32_t{0}, high = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = SortKey(row[i]);
    keys[i] = key;
    low = key < low ? key : low;
    high = key > high ? key : high;
  }
  return {low, high};
}

// One word for each entry: the first bits of its key, and its index.
JAXSEL_CLONES void PackKeys(const uint32_t* __restrict keys, int64_t n, uint32_t low,
                            int shift, uint32_t* __restrict packed) {
  for (int64_t i = 0; i < n; ++i) {
    packed[i] = (keys[i] - low) >> shift << kIndex | static_cast<uint32_t>(i);
  }
}

JAXSEL_CLONES void TakeIndices(const uint32_t* __restrict packed, int64_t n,
                               int32_t* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<int32_t>(packed[i] & (kShort - 1));
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
// As below, sixteen at a time. Returns the entry at which it stops.
__attribute__((target("avx512f,popcnt"))) int64_t ListAlikeWide(
    const uint32_t* sorted, int64_t n, uint32_t* list, int64_t* alike) {
  const __m512i limit = _mm512_set1_epi32(kShort), step = _mm512_set1_epi32(16);
  __m512i index = _mm512_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
  int64_t i = 1;
  for (; i + 16 <= n; i += 16) {
    const __m512i here = _mm512_loadu_si512(sorted + i);
    const __m512i before = _mm512_loadu_si512(sorted + i - 1);
    const __mmask16 mask =
        _mm512_cmplt_epu32_mask(_mm512_xor_si512(here, before), limit);
    // All sixteen are stored: some processors are slow at storing by a mask.
    _mm512_storeu_si512(list + *alike, _mm512_maskz_compress_epi32(mask, index));
    *alike += __builtin_popcount(mask);
    index = _mm512_add_epi32(index, step);
  }
  return i;
}
#endif

// Lists the entries whose first bits are those of the entry before, and counts them. A
// list, since whether two are alike can't be foretold, and a branch would wait.
int64_t ListAlike(const uint32_t* sorted, int64_t n, uint32_t* list) {
  int64_t alike = 0, i = 1;
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("avx512f")) i = ListAlikeWide(sorted, n, list, &alike);
#endif
  for (; i < n; ++i) {
    list[alike] = static_cast<uint32_t>(i);
    alike += (sorted[i - 1] ^ sorted[i]) < kShort;
  }
  return alike;
}

// Sorts a short row by two passes, and insertion among entries whose first bits are alike.
// Returns whether it did: not where the row is long, or too many are alike.
bool SortShort(Span span, int64_t n, int32_t* out, SortScratch& s) {
  if (n > kShort || span.high - span.low >= kWidest) return false;
  const uint32_t* keys = s.keys.data();
  int shift = 0;
  while ((span.high - span.low) >> shift >> 2 * kDigit) ++shift;
  s.first.resize(n);
  s.second.resize(n);
  uint32_t *first = s.first.data(), *second = s.second.data();
  PackKeys(keys, n, span.low, shift, first);
  s.count.assign(2 * kDigits, 0);
  uint32_t *lower = s.count.data(), *upper = lower + kDigits;
  for (int64_t i = 0; i < n; ++i) {
    ++lower[first[i] >> kIndex & kLower];
    ++upper[first[i] >> (kIndex + kDigit)];
  }
  for (uint32_t* count : {lower, upper}) {
    uint32_t start = 0;
    for (uint32_t j = 0; j < kDigits; ++j) start += std::exchange(count[j], start);
  }
  for (int64_t i = 0; i < n; ++i) {
    second[lower[first[i] >> kIndex & kLower]++] = first[i];
  }
  for (int64_t i = 0; i < n; ++i) {
    first[upper[second[i] >> (kIndex + kDigit)]++] = second[i];
  }
  TakeIndices(first, n, out);
  const int64_t alike = ListAlike(first, n, second);
  int64_t moves = 0;
  for (int64_t a = 0; a < alike; ++a) {
    const int64_t i = second[a];
    const int32_t point = out[i];
    int64_t j = i;
    while (j > 0 && (first[j - 1] ^ first[i]) < kShort && keys[out[j - 1]] > keys[point]) {
      out[j] = out[j - 1];
      --j;
    }
    out[j] = point;
    moves += i - j;
    if (moves > n / 4) return false;
  }
  return true;
}

// Sorts any row by three passes over (key, index) pairs.
void SortLong(int64_t n, int32_t* out, SortScratch& s) {
  s.a.resize(n);
  s.b.resize(n);
  s.count.assign(3 * kBuckets, 0);
  const uint32_t* keys = s.keys.data();
  uint32_t *low = s.count.data(), *middle = low + kBuckets, *high = middle + kBuckets;
  for (int64_t i = 0; i < n; ++i) {
    ++low[keys[i] & kMask];
    ++middle[keys[i] >> kBits & kMask];
    ++high[keys[i] >> 2 * kBits];
  }
  for (uint32_t* count : {low, middle, high}) {
    uint32_t start = 0;
    for (uint32_t j = 0; j < kBuckets; ++j) start += std::exchange(count[j], start);
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = keys[i];
    s.a[low[key & kMask]++] = key << 32 | static_cast<uint64_t>(i);
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t pair = s.a[i];
    s.b[middle[pair >> (32 + kBits) & kMask]++] = pair;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t pair = s.b[i];
    out[high[pair >> (32 + 2 * kBits)]++] = static_cast<int32_t>(pair);
  }
}

// Writes the stable ascending order of row[0..n) to out: 2 to 4 ns an entry, whatever the
// data. Says who is tied, if asked.
void SortRow(const float* row, int64_t n, int32_t* out, SortScratch& s,
             Ties* ties = nullptr) {
  s.keys.resize(n);
  const Span span = WriteKeys(row, n, s.keys.data());
  if (!SortShort(span, n, out, s)) SortLong(n, out, s);
  if (!ties) return;
  ties->assign(n + 1, 0);
  for (int64_t r = 1; r < n; ++r) (*ties)[r] = s.keys[out[r]] == s.keys[out[r - 1]];
}

}  // namespace
