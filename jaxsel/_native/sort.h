// The order of floats.

#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace {

// An unsigned integer that sorts as the float does (-0 and 0 alike, NaN last). By bits
// alone: XLA's threads take denormal operands of float arithmetic for 0.
inline uint32_t SortKey(float value) {
  constexpr uint32_t kSign = uint32_t{1} << 31, kInfinity = 0x7f800000;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & ~kSign) > kInfinity) return ~uint32_t{0};
  if (bits == kSign) bits = 0;
  return bits ^ (bits >> 31 ? ~uint32_t{0} : kSign);
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
};

// Whether the point at each rank is as far as the one before; one place more than ranks.
using Ties = std::vector<uint8_t>;

// Writes the stable ascending order of row[0..n) to out, by a radix sort of
// (key, index) pairs: 5 ns an entry, whatever the data. Says who is tied, if asked.
void SortRow(const float* row, int64_t n, int32_t* out, SortScratch& s,
             Ties* ties = nullptr) {
  s.a.resize(n);
  s.b.resize(n);
  s.count.assign(3 * kBuckets, 0);
  uint32_t *low = s.count.data(), *middle = low + kBuckets, *high = middle + kBuckets;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = SortKey(row[i]);
    ++low[key & kMask];
    ++middle[key >> kBits & kMask];
    ++high[key >> 2 * kBits];
  }
  for (uint32_t* count : {low, middle, high}) {
    uint32_t start = 0;
    for (uint32_t j = 0; j < kBuckets; ++j) start += std::exchange(count[j], start);
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = SortKey(row[i]);
    s.a[low[key & kMask]++] = key << 32 | static_cast<uint64_t>(i);
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t pair = s.a[i];
    s.b[middle[pair >> (32 + kBits) & kMask]++] = pair;
  }
  if (!ties) {
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t pair = s.b[i];
      out[high[pair >> (32 + 2 * kBits)]++] = static_cast<int32_t>(pair);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t pair = s.b[i];
    s.a[high[pair >> (32 + 2 * kBits)]++] = pair;
  }
  for (int64_t r = 0; r < n; ++r) out[r] = static_cast<int32_t>(s.a[r]);
  ties->assign(n + 1, 0);
  for (int64_t r = 1; r < n; ++r) {
    (*ties)[r] = s.a[r] >> 32 == s.a[r - 1] >> 32;
  }
}

}  // namespace
