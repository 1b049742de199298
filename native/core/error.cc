#include "core/error.h"

namespace warpjoin {

const char* code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::column_not_found: return "ERR_COLUMN_NOT_FOUND";
    case ErrorCode::key_type: return "ERR_KEY_TYPE";
    case ErrorCode::option: return "ERR_OPTION";
    case ErrorCode::invalid_table: return "ERR_INVALID_TABLE";
    case ErrorCode::memory_limit: return "ERR_MEMORY_LIMIT";
    case ErrorCode::output_rows: return "ERR_OUTPUT_ROWS";
    case ErrorCode::device_memory: return "ERR_DEVICE_MEMORY";
    case ErrorCode::device: return "ERR_DEVICE";
    case ErrorCode::not_supported: return "ERR_NOT_SUPPORTED";
    case ErrorCode::file: return "ERR_FILE";
    case ErrorCode::aborted: return "ERR_ABORTED";
    case ErrorCode::internal: return "ERR_INTERNAL";
  }
  return "ERR_INTERNAL";
}

}  // namespace warpjoin
