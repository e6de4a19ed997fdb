// Points whose order float32 distances leave open: see _exact.py.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "exact.h"
#include "sort.h"

namespace {

struct Settled {
  double distance;
  int32_t index;
};

// Sorts by distance, and by index where only rounding tells distances apart.
void SortTies(std::vector<Settled>& group, const Exact& exact) {
  std::sort(group.begin(), group.end(), [](const Settled& a, const Settled& b) {
    return a.distance < b.distance;
  });
  for (auto first = group.begin(), stop = first; first != group.end(); first = stop) {
    for (++stop; stop != group.end(); ++stop) {
      const double last = std::prev(stop)->distance;
      if (stop->distance - last > exact.Tie(stop->distance)) break;
    }
    if (stop - first == 1) continue;
    std::sort(first, stop, [](const Settled& a, const Settled& b) {
      return a.index < b.index;
    });
    for (auto tied = first; tied != stop; ++tied) tied->distance = first->distance;
  }
}

// The range of the gains, zero included. Bytes are 0 or 1.
double Span(const uint8_t* gain, int64_t n) { return std::memchr(gain, 1, n) ? 1 : 0; }
JAXSEL_CLONES double Span(const float* gain, int64_t n) {
  constexpr int kLanes = 16;  // side by side, or each step waits for the one before
  float low[kLanes] = {}, high[kLanes] = {};
  const int64_t even = n - n % kLanes;
  for (int64_t i = 0; i < even; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float one = gain[i + lane];
      low[lane] = one < low[lane] ? one : low[lane];
      high[lane] = one > high[lane] ? one : high[lane];
    }
  }
  for (int64_t i = even; i < n; ++i) {
    low[0] = std::min(low[0], gain[i]);
    high[0] = std::max(high[0], gain[i]);
  }
  return *std::max_element(high, high + kLanes) - *std::min_element(low, low + kLanes);
}

// How many ranks it takes at least, 256 at most, until drops no larger than `steepest`
// add up to half of `worth`.
JAXSEL_CLONES void WriteAhead(const float* __restrict steepest, int64_t n, double worth,
                              uint16_t* __restrict ahead) {
  for (int64_t i = 0; i < n; ++i) {
    const double ranks = worth / (2 * double(steepest[i]));  // infinite, or 0 / 0
    const double most = ranks < 256 ? ranks : 256;
    ahead[i] = static_cast<uint16_t>(static_cast<int32_t>(most > 1 ? most : 1));
  }
}

// What the drops of the ranks say about an order.
struct Falls {
  const float* of = nullptr;
  double worth = 0;             // what a fall must exceed to matter
  std::vector<uint16_t> ahead;  // so many ranks from each on cannot: their order is free
  int64_t dense = 0;            // ranks up to here are not worth skipping
  std::vector<int32_t> strides;  // from there on, ranks between which it is free

  void Read(const float* drop, int64_t n) {
    of = drop;
    ahead.resize(n);
    constexpr int64_t kBlock = 512;
    double sum = 0;
    for (int64_t r = 0; r < n; ++r) sum += std::abs(drop[r]);
    worth = kTolerance * sum;
    float behind[kBlock], steepest = 0;  // the largest drop behind each rank
    for (int64_t stop = n, first; stop > 0; stop = first) {
      first = (stop - 1) / kBlock * kBlock;
      for (int64_t r = stop - 1; r >= first; --r) {
        behind[r - first] = steepest;
        steepest = std::max(steepest, std::abs(drop[r]));
      }
      WriteAhead(behind, stop - first, worth, ahead.data() + first);
    }
    dense = n;
    while (dense > 0 && ahead[dense - 1] >= 2) --dense;
    strides.clear();
    for (int64_t r = std::max<int64_t>(dense - 1, 0); r < n; r += ahead[r]) {
      strides.push_back(static_cast<int32_t>(r));
    }
  }
  // The falls of a row: those that all rows share, if its drops are the same.
  const Falls& For(const float* drop, int64_t n, const Falls& shared) {
    if (shared.of == drop) return shared;
    Read(drop, n);
    return *this;
  }
};

template <typename Gain>
struct OrderScratch {
  SortScratch sort;
  Falls falls;
  std::vector<float> row, near;
  std::vector<Gain> gain;  // of the points at the first ranks
  std::vector<uint8_t> marks;
  std::vector<Settled> group;
  Ties ties;
};

// Whether the points at each rank and the next are within `room`, and gain unequally.
template <typename Gain>
JAXSEL_INLINE void Mark(const float* __restrict near, const Gain* __restrict gain,
                        int64_t n, float room, uint8_t* __restrict marks) {
  for (int64_t r = 0; r < n; ++r) {
    marks[r] = (near[r + 1] - near[r] <= room) & (gain[r + 1] != gain[r]);
  }
}
JAXSEL_CLONES void MarkNear(const float* near, const float* gain, int64_t n, float room,
                            uint8_t* marks) {
  Mark(near, gain, n, room, marks);
}
JAXSEL_CLONES void MarkNear(const float* near, const uint8_t* gain, int64_t n, float room,
                            uint8_t* marks) {
  Mark(near, gain, n, room, marks);
}

// The end of the group that begins at `first`: points whose true distances may lie in
// any order, one linked to the next.
int64_t EndOfGroup(const int32_t* order, const float* distance, int64_t first, int64_t n,
                   const Exact& exact) {
  const float here = distance[order[first]];
  float reach = here + exact.Slack(order[first], here);
  int64_t stop = first + 1;
  for (int64_t look = stop; look < n; ++look) {
    const float far = distance[order[look]];
    if (far > exact.Within(reach)) break;
    if (far - exact.Slack(order[look], far) > reach) continue;
    for (; stop <= look; ++stop) {
      const float between = distance[order[stop]];
      reach = std::max(reach, between + exact.Slack(order[stop], between));
    }
  }
  return stop;
}

void SettleGroup(int32_t* order, Ties* ties, int64_t first, int64_t stop,
                 const Exact& exact, std::vector<Settled>& group) {
  group.clear();
  for (int64_t r = first; r < stop; ++r) {
    group.push_back({exact.Distance(order[r]), order[r]});
  }
  SortTies(group, exact);
  for (int64_t r = first; r < stop; ++r) {
    const Settled& point = group[r - first];
    order[r] = point.index;
    if (!ties || r == first) continue;
    const float before = static_cast<float>(group[r - first - 1].distance);
    (*ties)[r] = before == static_cast<float>(point.distance);
  }
}

// Computes the distances anew that lost their digits: they are all among the nearest.
// Returns the row, or a copy of it where any was.
template <typename Gain>
const float* Regain(int32_t* order, const float* distance, int64_t n, const Exact& exact,
                    Ties* ties, OrderScratch<Gain>& s) {
  int64_t stop = 0;
  // What is found may lie a little farther than it did: sort a little farther, too.
  const float bound = exact.lost_within * (1 + 4 * kTrust);
  while (stop < n && distance[order[stop]] <= bound) ++stop;
  if (stop == 0) return distance;
  if (distance != s.row.data()) s.row.assign(distance, distance + n);
  for (int64_t r = 0; r < stop; ++r) {
    float& one = s.row[order[r]];
    if (exact.Lost(order[r], one)) one = static_cast<float>(exact.Distance(order[r]));
  }
  std::sort(order, order + stop, [&](int32_t a, int32_t b) {
    return s.row[a] != s.row[b] ? s.row[a] < s.row[b] : a < b;
  });
  for (int64_t r = 1; ties && r < std::min(n, stop + 1); ++r) {
    (*ties)[r] = SortKey(s.row[order[r]]) == SortKey(s.row[order[r - 1]]);
  }
  return s.row.data();
}

// Brings points whose order float32 leaves open into their true order, wherever that
// moves a value by more than a share of the most that a point can be worth. `ties`, if
// given, is brought up to date, and `s.gain` has the gains at the ranks of weight.
template <typename Gain>
void Settle(int32_t* order, const float* distance, int64_t n, const Gain* gain,
            const float* drop, const Falls& falls, const Exact& exact, Ties* ties,
            OrderScratch<Gain>& s) {
  distance = Regain(order, distance, n, exact, ties, s);
  const double worth = falls.worth * Span(gain, n);
  // Ranks of weight are looked at one by one, from sorted copies; the others by strides.
  const int64_t dense = falls.dense;
  s.near.resize(dense);
  s.gain.resize(dense);
  float* const near = s.near.data();  // bytes written might be the vectors' own
  Gain* const gains = s.gain.data();
  for (int64_t r = 0; r < dense; ++r) {
    near[r] = distance[order[r]];
    gains[r] = gain[order[r]];
  }
  const auto linked = [&](float here, float there) {
    return there - here <= 2.01f * exact.MostSlack(there);
  };
  const auto close = [&](int64_t one, int64_t other) {
    return linked(distance[order[one]], distance[order[other]]);
  };
  // Whether the order of some ranks may move a value.
  const auto matters = [&](int64_t begin, int64_t end) {
    Gain low = gain[order[begin]], high = low;
    double fall = 0;
    for (int64_t r = begin + 1; r < end; ++r) {
      low = std::min(low, gain[order[r]]);
      high = std::max(high, gain[order[r]]);
      fall += std::abs(drop[r]);
    }
    return fall * (float(high) - float(low)) > worth;
  };
  // Settles all around `first` that might be linked by the largest slack. Returns the
  // rank behind it.
  int64_t settled = 0;
  const auto settle_around = [&](int64_t first) {
    int64_t stop = first + 1;
    while (stop < n && close(stop - 1, stop)) ++stop;
    while (first > settled && close(first - 1, first)) --first;
    if (matters(first, stop)) {
      for (int64_t begin = first, end; begin < stop; begin = end) {
        end = EndOfGroup(order, distance, begin, stop, exact);
        if (end > begin + 1 && matters(begin, end)) {
          SettleGroup(order, ties, begin, end, exact, s.group);
          for (int64_t r = begin; r < std::min(end, dense); ++r) {
            s.gain[r] = gain[order[r]];
          }
        }
      }
    }
    return settled = stop;
  };
  if (dense > 1) {
    s.marks.assign(dense + 7, 0);  // read eight at a time
    // Slacks grow with the distance: the last one's holds for all.
    const float room = 2.01f * exact.MostSlack(s.near[dense - 1]);
    MarkNear(s.near.data(), s.gain.data(), dense - 1, room, s.marks.data());
  }
  for (int64_t first = 0; first + 1 < dense;) {
    uint64_t any;
    std::memcpy(&any, s.marks.data() + first, sizeof any);
    if (!any) {
      first += sizeof any;
    } else if (s.marks[first] && linked(s.near[first], s.near[first + 1])) {
      first = settle_around(first);
    } else {
      ++first;
    }
  }
  float here = falls.strides.empty() ? 0 : distance[order[falls.strides[0]]];
  for (size_t i = 1; i < falls.strides.size(); ++i) {
    const int64_t first = falls.strides[i - 1], stop = falls.strides[i];
    float there = distance[order[stop]];
    if (linked(here, there) && stop > settled) {
      settle_around(std::max(first, settled));
      there = distance[order[stop]];
    }
    here = there;
  }
}

}  // namespace
