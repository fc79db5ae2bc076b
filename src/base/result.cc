#include "base/result.h"

namespace jige {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInternal:
      return "internal";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kExhausted:
      return "exhausted";
    case Code::kIo:
      return "io";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kCancelled:
      return "cancelled";
  }
  return "internal";
}

int exit_code(Code code) {
  switch (code) {
    case Code::kInternal:
      return 1;
    case Code::kInvalidArgument:
      return 2;
    case Code::kNotFound:
      return 3;
    case Code::kCorrupt:
      return 4;
    case Code::kUnsupported:
      return 5;
    case Code::kExhausted:
      return 6;
    case Code::kIo:
      return 7;
    case Code::kUnavailable:
      return 8;
    case Code::kCancelled:
      return 130;
  }
  return 1;
}

}  // namespace jige
