// What the benchmarks on GPUs share: their command line.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <variant>

#include "core/error.h"
#include "device/gpu_device.h"

namespace warpjoin::bench {

/// `--name value`: a text, or a number from `least` to `most`.
struct Option {
  const char* name;
  std::variant<uint64_t*, unsigned*, std::string*> target;
  uint64_t least = 1, most = UINT64_MAX;

  void set(const char* value) const {
    if (auto* const* text = std::get_if<std::string*>(&target)) {
      **text = value;
      return;
    }
    uint64_t number = 0;
    const char* const end = value + std::strlen(value);
    const auto [stop, error] = std::from_chars(value, end, number);
    if (error != std::errc() || stop != end || number < least || number > most) {
      throw Error(ErrorCode::option, std::string("Expected a number from ") + std::to_string(least) + " to " +
                                         std::to_string(most) + " for " + name + ", not " + value);
    }
    if (auto* const* narrow = std::get_if<unsigned*>(&target)) {
      **narrow = static_cast<unsigned>(number);
    } else {
      *std::get<uint64_t*>(target) = number;
    }
  }
};

inline void read_options(int argc, char** argv, std::initializer_list<Option> options) {
  for (int i = 1; i < argc; i += 2) {
    const Option* found = nullptr;
    std::string names;
    for (const Option& option : options) {
      if (std::strcmp(argv[i], option.name) == 0) found = &option;
      names += std::string(" ") + option.name;
    }
    if (!found) throw Error(ErrorCode::option, std::string("Expected one of") + names + ", not " + argv[i]);
    if (i + 1 == argc) throw Error(ErrorCode::option, std::string("Expected a value for ") + argv[i]);
    found->set(argv[i + 1]);
  }
}

/// A benchmark's main(): reads its options, makes sure that there is a GPU, and prints what goes wrong. Gives the exit code,
/// `run`'s.
inline int main_of(int argc, char** argv, std::initializer_list<Option> options, const std::function<int()>& run) {
  try {
    read_options(argc, argv, options);
    if (visible_gpus().empty())
      throw Error(ErrorCode::device, std::string("There is no GPU (this build: ") + gpu_backend() + ")");
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace warpjoin::bench
