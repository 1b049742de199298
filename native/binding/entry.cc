#include "binding/entry.h"

#include <new>

#include "core/error.h"

namespace warpjoin::binding {
namespace {

napi_value coded(napi_env env, const char* code, const char* message) noexcept {
  napi_value js_code = nullptr, js_message = nullptr, error = nullptr;
  const bool made = napi_create_string_utf8(env, code, NAPI_AUTO_LENGTH, &js_code) == napi_ok &&
                    napi_create_string_utf8(env, message, NAPI_AUTO_LENGTH, &js_message) == napi_ok &&
                    napi_create_error(env, js_code, js_message, &error) == napi_ok;
  return made ? error : nullptr;
}

}  // namespace

napi_value to_js_error(napi_env env, const std::exception_ptr& error) noexcept {
  const auto failure = [&](ErrorCode code, const char* message) { return coded(env, code_name(code), message); };
  try {
    std::rethrow_exception(error);
  } catch (const Napi::Error& e) {
    try {
      return e.Value();
    } catch (...) {
      return nullptr;
    }
  } catch (const DeviceMemoryShortage& e) {
    napi_value free_bytes = nullptr, js = failure(e.code(), e.what());
    if (js && napi_create_double(env, static_cast<double>(e.free_bytes()), &free_bytes) == napi_ok) {
      napi_set_named_property(env, js, "freeBytes", free_bytes);
    }
    return js;
  } catch (const Error& e) {
    return failure(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return failure(ErrorCode::memory_limit, "The system has no memory left");
  } catch (const std::exception& e) {
    return failure(ErrorCode::internal, e.what());
  } catch (...) {
    return failure(ErrorCode::internal, "An exception of an unknown type");
  }
}

void throw_into_js(napi_env env) noexcept {
  // What JavaScript threw itself is no longer pending: Napi::Error has taken it.
  const napi_value error = to_js_error(env, std::current_exception());
  if (error) napi_throw(env, error);
}

}  // namespace warpjoin::binding
