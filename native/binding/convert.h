// JavaScript values to C++ and back. Everything throws Napi::TypeError, naming the argument, on a wrong type.
#pragma once

#include <napi.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "columns/convert.h"
#include "columns/encode.h"
#include "core/column.h"
#include "core/host_memory.h"
#include "device/device.h"
#include "join/join.h"
#include "transfer/link_speeds.h"

namespace warpjoin::binding {

/// A non-negative integer that a double holds exactly.
uint64_t to_count(const Napi::Value& value, const char* what);
/// One from `least` to `most`; Napi::RangeError for others.
uint64_t to_count(const Napi::Value& value, const char* what, uint64_t least, uint64_t most);
/// Like to_count; Infinity gives UINT64_MAX.
uint64_t to_bound(const Napi::Value& value, const char* what);
bool to_bool(const Napi::Value& value, const char* what);
std::string to_string(const Napi::Value& value, const char* what);
Napi::Array to_array(const Napi::Value& value, const char* what);
Napi::Object to_object(const Napi::Value& value, const char* what);
std::vector<int> to_ordinals(const Napi::Value& value, const char* what);
std::vector<uint64_t> to_counts(const Napi::Value& value, const char* what);
std::vector<bool> to_bools(const Napi::Value& value, const char* what);

/// Reads a NativeColumn (lib/native.ts). The chunks borrow the buffers behind the views. `held` gets the views: what they were
/// read from may give others the next time.
Column to_column(const Napi::Value& value, Napi::Array& held);

/// Reads KeyComparisons as pairs without their columns.
std::vector<JoinKeyPair> to_comparisons(const Napi::Value& value);
/// Reads a ColumnConversion; null: the column stays as it is.
std::optional<columns::Conversion> to_conversion(const Napi::Value& value);
/// Reads a NativeJoinRequest.
JoinRequest to_join_request(const Napi::Value& value);

/// Makes a NativeResultColumn, without a copy where external buffers are allowed. Values that are not of variable width are cut
/// so that no buffer has more than `max_buffer_bytes`. Throws Error(internal) where the column has fewer values than its length.
/// `kept` gets the buffers, which then live on without JavaScript.
Napi::Value to_result_column(Napi::Env env, OwnedColumn column, uint64_t max_buffer_bytes,
                             std::vector<std::shared_ptr<HostBuffer>>* kept = nullptr);
/// What keeps memory for its ArrayBuffer. It may be reset once that is detached.
using BufferOwner = std::shared_ptr<std::shared_ptr<void>>;
/// `size` bytes of what `kept` has, from `data` on, as an ArrayBuffer, without a copy where external buffers are allowed. It is
/// kept as long as any of its ArrayBuffers lives, or until `owner`, where it is asked for, is reset.
Napi::Value to_array_buffer(Napi::Env env, const std::shared_ptr<void>& kept, char* data, size_t size,
                            BufferOwner* owner = nullptr);
/// Bytes [begin, begin + size) of a buffer, likewise.
Napi::Value to_array_buffer(Napi::Env env, const std::shared_ptr<HostBuffer>& buffer, size_t begin, size_t size,
                            BufferOwner* owner = nullptr);
/// Makes LinkSpeeds.
Napi::Value to_js_links(Napi::Env env, const LinkSpeeds& speeds);

}  // namespace warpjoin::binding
