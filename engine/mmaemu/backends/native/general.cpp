// SPDX-License-Identifier: Apache-2.0
// The steps of general.h. Loops over lanes are plain, for the compiler to make vectors of.

#include "general.h"

#include <algorithm>

namespace mmaemu {

namespace {

constexpr int32_t kNone = -(1 << 20);  // exponent of a term that takes no part in the common one, also as a sum of two
constexpr uint8_t kPlusInf = 1, kMinusInf = 2, kNotANumber = 4, kBothInf = kPlusInf | kMinusInf;

struct Result {
  uint32_t word;
  uint8_t flags;
};

// (-1)^negative * magnitude * 2^lsb with `fraction_bits` of the format's, below its smallest exponent as a subnormal.
Result round(bool negative, uint64_t magnitude, int32_t lsb, int fraction_bits, bool nearest, bool saturates,
             bool zero_keeps_sign, const Format& format) {
  const uint32_t sign = negative ? format.sign() : 0;
  if (magnitude == 0) return {zero_keeps_sign ? sign : 0, 0};
  const int top = 63 - __builtin_clzll(magnitude);
  int drop = std::max(top - fraction_bits, format.lowest() - fraction_bits - lsb);
  uint64_t kept = drop <= 0 ? magnitude << -drop : drop > 63 ? 0 : magnitude >> drop;
  if (nearest && drop > 0 && drop <= 63) {
    const uint64_t rest = magnitude - (kept << drop), half = uint64_t(1) << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1));
    const int carried = int(kept >> (fraction_bits + 1));
    kept >>= carried;
    drop += carried;
  }
  if (kept == 0) return {zero_keeps_sign ? sign : 0, 0};
  const int32_t exponent = lsb + drop + fraction_bits;
  if (exponent > format.highest()) {
    if (!saturates) return {0, negative ? kMinusInf : kPlusInf};
    const uint32_t ones = ((1u << (fraction_bits + 1)) - 1) << (format.fraction_bits - fraction_bits);
    return {sign | (ones + (uint32_t(format.highest() + format.bias - 1) << format.fraction_bits)), 0};
  }
  // The leading one of a normal number counts as one more in the exponent's field; a subnormal has neither.
  const uint32_t fraction = uint32_t(kept) << (format.fraction_bits - fraction_bits);
  return {sign | (fraction + (uint32_t(exponent - format.lowest()) << format.fraction_bits)), 0};
}

// x + y of finite words, to nearest even.
Result add(uint32_t x, uint32_t y, const Format& format) {
  if (format.bytes == 4) {
    const uint32_t sum = float_to_bits(bits_to_float(x) + bits_to_float(y));
    if ((sum & INT32_MAX) > format.largest()) return {0, sum & format.sign() ? kMinusInf : kPlusInf};
    return {sum, 0};
  }
  // float16: every number is a multiple of 2^-24 below 2^40 of them.
  const auto units = [&](uint32_t word) {
    const Number number = decode(word, format);
    const int64_t magnitude = int64_t(number.magnitude) << (number.exponent - format.lowest());
    return number.negative ? -magnitude : magnitude;
  };
  const int64_t total = units(x) + units(y);
  const bool negative = total == 0 ? x & y & format.sign() : total < 0;
  return round(negative, uint64_t(total < 0 ? -total : total), format.lowest() - format.fraction_bits,
               format.fraction_bits, true, false, true, format);
}

uint8_t product_flags(uint8_t kind_a, bool zero_a, uint8_t kind_b, bool zero_b, bool negative) {
  if (kind_a == kFinite && kind_b == kFinite) return 0;
  if (kind_a == kNaN || kind_b == kNaN || zero_a || zero_b) return kNotANumber;
  return negative ? kMinusInf : kPlusInf;
}

struct Step {
  int32_t common[kLanes];
  int64_t sum[kLanes];
};

// One step of the products at `ks` (offsets from `first`) and the accumulators.
template <bool kShared, int kFormat>
inline __attribute__((always_inline)) void add_exactly(const Terms& a, const Terms& b, int64_t first, const int32_t* ks,
                                                       int count, const Rule& rule, int down, const uint32_t* words,
                                                       Step& step) {
  constexpr Format format = kFormats[kFormat];
  const uint32_t *ma = a.magnitude.data(), *mb = b.magnitude.data();
  const int32_t *ea = a.exponent.data(), *eb = b.exponent.data(), *sa = a.sign.data(), *sb = b.sign.data();
  int32_t common[kLanes];
  int64_t sum[kLanes];
  uint32_t magnitude[kLanes];
  int32_t own[kLanes];
  for (int j = 0; j < kLanes; ++j) {
    const uint32_t code = words[j] & (format.sign() - 1), field = code >> format.fraction_bits;
    magnitude[j] = (code & ((1u << format.fraction_bits) - 1)) | (field ? 1u << format.fraction_bits : 0);
    own[j] = int32_t(field ? field : 1) - format.bias;
    const int32_t taken = magnitude[j] || rule.zero_accumulator_aligns ? own[j] : kNone;
    common[j] = taken > rule.min_exponent ? taken : rule.min_exponent;
  }
  for (int t = 0; t < count; ++t) {
    const int64_t k = first + ks[t], at_a = kShared ? k : k * kLanes, at_b = k * kLanes;
    for (int j = 0; j < kLanes; ++j) {
      const int32_t exponent = ea[kShared ? at_a : at_a + j] + eb[at_b + j];
      common[j] = exponent > common[j] ? exponent : common[j];
    }
  }
  const int up = rule.fraction_bits - format.fraction_bits, above = up > 0 ? up : 0, under = up < 0 ? -up : 0;
  for (int j = 0; j < kLanes; ++j) {
    // A zero that takes no part may lie above the common exponent.
    const int32_t off = common[j] - own[j] + under, shift = off < 0 ? 0 : off > 63 ? 63 : off;
    const int64_t kept = int64_t(uint64_t(magnitude[j]) << above >> shift);
    sum[j] = words[j] & format.sign() ? -kept : kept;
  }
  for (int t = 0; t < count; ++t) {
    const int64_t k = first + ks[t], at_a = kShared ? k : k * kLanes, at_b = k * kLanes;
    for (int j = 0; j < kLanes; ++j) {
      const int64_t i = kShared ? at_a : at_a + j;
      const int32_t off = common[j] + down - (ea[i] + eb[at_b + j]);
      const uint32_t shift = off < 31 ? uint32_t(off) : 31;  // magnitudes are below 2^31: nothing is left
      const int32_t sign = sa[i] ^ sb[at_b + j];
      const int32_t kept = int32_t(ma[i] * mb[at_b + j] >> shift);
      sum[j] += (kept ^ sign) - sign;
    }
  }
  for (int j = 0; j < kLanes; ++j) step.common[j] = common[j], step.sum[j] = sum[j];
}

void flag_products(const Terms& a, const Terms& b, int64_t first, const int32_t* ks, int count, uint8_t* flags) {
  for (int t = 0; t < count; ++t)
    for (int j = 0; j < kLanes; ++j) {
      const int64_t k = first + ks[t], at_a = a.lanes == 1 ? k : k * kLanes + j, at_b = k * kLanes + j;
      flags[j] |= product_flags(a.kind[at_a], a.magnitude[at_a] == 0 && a.kind[at_a] == kFinite, b.kind[at_b],
                                b.magnitude[at_b] == 0 && b.kind[at_b] == kFinite, a.sign[at_a] ^ b.sign[at_b]);
    }
}

template <bool kShared, int kFormat>
inline __attribute__((always_inline)) void chain_on(const Terms& a, const Terms& b, const Rule& rule, int down,
                                                    Accumulators& acc) {
  constexpr Format format = kFormats[kFormat];
  const bool special = a.special || b.special;
  const int64_t length = int64_t(b.exponent.size()) / kLanes;
  for (int64_t first = 0; first < length; first += rule.instruction_k) {
    Accumulators running = acc;
    if (rule.after) running = {};
    for (int begin = 0; begin < rule.instruction_k; begin += rule.group) {
      const int count = std::min(rule.group, rule.instruction_k - begin);
      Step step;
      add_exactly<kShared, kFormat>(a, b, first, rule.order + begin, count, rule, down, running.word, step);
      if (special) flag_products(a, b, first, rule.order + begin, count, running.flags);
      for (int j = 0; j < kLanes; ++j) {
        const bool negative = step.sum[j] < 0;
        const Result result = round(negative, uint64_t(negative ? -step.sum[j] : step.sum[j]),
                                    step.common[j] - rule.fraction_bits, rule.result_fraction_bits, rule.nearest,
                                    rule.saturates, rule.underflow_keeps_sign, format);
        running.word[j] = result.word;
        // An infinity or NaN stays what it is, whatever the finite terms add up to.
        if (running.flags[j] == 0) running.flags[j] = result.flags;
      }
    }
    if (rule.after)
      for (int j = 0; j < kLanes; ++j) {
        running.flags[j] |= acc.flags[j];
        if (running.flags[j]) continue;
        const Result sum = add(running.word[j], acc.word[j], format);
        running.word[j] = sum.word;
        running.flags[j] = sum.flags;
      }
    acc = running;
  }
}

inline __attribute__((always_inline)) void chain_any(const Terms& a, const Terms& b, const Rule& rule, int down,
                                                     int format, Accumulators& acc) {
  if (a.lanes == 1) return format == kF16 ? chain_on<true, kF16>(a, b, rule, down, acc) : chain_on<true, kF32>(a, b, rule, down, acc);
  return format == kF16 ? chain_on<false, kF16>(a, b, rule, down, acc) : chain_on<false, kF32>(a, b, rule, down, acc);
}

// Words of `count` numbers of one format to their parts.
template <int kFormat>
inline __attribute__((always_inline)) void decode_as(const uint32_t* words, int64_t count, bool zeros_align, int shift,
                                                     Terms& terms) {
  constexpr Format format = kFormats[kFormat];
  uint32_t* magnitudes = terms.magnitude.data();
  int32_t *exponents = terms.exponent.data(), *signs = terms.sign.data();
  uint8_t* kinds = terms.kind.data();
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t code = (words[i] & (format.sign() - 1)) >> format.ignored_bits, field = code >> format.fraction_bits;
    const uint32_t fraction = code & ((1u << format.fraction_bits) - 1);
    const uint32_t magnitude = code > format.largest() ? 0 : fraction | (field ? 1u << format.fraction_bits : 0);
    magnitudes[i] = magnitude << shift;
    exponents[i] = magnitude || zeros_align ? int32_t(field ? field : 1) - format.bias : kNone;
    signs[i] = words[i] & format.sign() ? -1 : 0;
    largest = code > largest ? code : largest;
  }
  terms.special = largest > format.largest();
  if (terms.special)
    for (int64_t i = 0; i < count; ++i) kinds[i] = decode(words[i], format).kind;
  else
    std::fill_n(kinds, count, uint8_t(kFinite));
}

inline __attribute__((always_inline)) void decode_any(const uint32_t* words, int64_t count, int format, bool zeros_align,
                                                      int shift, Terms& terms) {
  switch (format) {
    case kE4M3: return decode_as<kE4M3>(words, count, zeros_align, shift, terms);
    case kE5M2: return decode_as<kE5M2>(words, count, zeros_align, shift, terms);
    case kF16: return decode_as<kF16>(words, count, zeros_align, shift, terms);
    case kBF16: return decode_as<kBF16>(words, count, zeros_align, shift, terms);
    default: return decode_as<kTF32>(words, count, zeros_align, shift, terms);
  }
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void chain_avx2(const Terms& a, const Terms& b, const Rule& rule, int down, int format,
                                                Accumulators& acc) {
  chain_any(a, b, rule, down, format, acc);
}

__attribute__((target("avx2"))) void decode_avx2(const uint32_t* words, int64_t count, int format, bool zeros_align,
                                                 int shift, Terms& terms) {
  decode_any(words, count, format, zeros_align, shift, terms);
}

bool has_avx2() { return __builtin_cpu_supports("avx2"); }

#else

void chain_avx2(const Terms&, const Terms&, const Rule&, int, int, Accumulators&) {}
void decode_avx2(const uint32_t*, int64_t, int, bool, int, Terms&) {}
bool has_avx2() { return false; }

#endif

// words[k][lane], zeros beyond `count` lanes and `length` k.
template <class Word>
void gather(const Words& from, int count, int lanes, int64_t length, uint32_t* words) {
  const auto at = [&](int lane, int64_t k) {
    Word word;
    std::memcpy(&word, from.at + lane * from.line_step + k * from.k_step, sizeof word);
    return uint32_t(word);
  };
  if (from.k_step == int64_t(sizeof(Word)))  // along memory
    for (int lane = 0; lane < count; ++lane)
      for (int64_t k = 0; k < length; ++k) words[k * lanes + lane] = at(lane, k);
  else
    for (int64_t k = 0; k < length; ++k)
      for (int lane = 0; lane < count; ++lane) words[k * lanes + lane] = at(lane, k);
}

}  // namespace

void Terms::read(const Words& from, int count, int all_lanes, int64_t length, const Rule& rule, int shift) {
  const int64_t whole = (length + rule.instruction_k - 1) / rule.instruction_k * rule.instruction_k;
  const size_t size = size_t(whole) * all_lanes;
  lanes = all_lanes;
  magnitude.resize(size);
  exponent.resize(size);
  sign.resize(size);
  kind.resize(size);
  words.assign(size, 0);
  switch (kFormats[from.format].bytes) {
    case 1: gather<uint8_t>(from, count, lanes, length, words.data()); break;
    case 2: gather<uint16_t>(from, count, lanes, length, words.data()); break;
    default: gather<uint32_t>(from, count, lanes, length, words.data());
  }
  (has_avx2() ? decode_avx2 : decode_any)(words.data(), int64_t(size), from.format, rule.zero_products_align, shift,
                                          *this);
}

void Accumulators::read(const uint32_t* words, const Format& format) {
  for (int j = 0; j < kLanes; ++j) {
    const Number number = decode(words[j], format);
    word[j] = number.kind == kFinite ? words[j] : 0;
    flags[j] = number.kind == kFinite ? 0 : number.kind == kNaN ? kNotANumber : number.negative ? kMinusInf : kPlusInf;
  }
}

void Accumulators::write(uint32_t* words, const Format& format, uint32_t nan) const {
  for (int j = 0; j < kLanes; ++j) {
    const bool not_a_number = flags[j] & kNotANumber || (flags[j] & kBothInf) == kBothInf;
    const uint32_t infinity = format.above() | (flags[j] & kMinusInf ? format.sign() : 0);
    words[j] = not_a_number ? nan : flags[j] ? infinity : word[j];
  }
}

Shifts shifts(const Rule& rule, int format_a, int format_b) {
  const int spare = rule.fraction_bits - kFormats[format_a].fraction_bits - kFormats[format_b].fraction_bits;
  return {std::max(spare, 0), std::max(-spare, 0)};
}

void chain(const Terms& a, const Terms& b, const Rule& rule, int down, int format, Accumulators& acc) {
  (has_avx2() ? chain_avx2 : chain_any)(a, b, rule, down, format, acc);
}

}  // namespace mmaemu
