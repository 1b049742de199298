// How JavaScript comes into C++, and C++ exceptions into JavaScript.
#pragma once

#include <napi.h>

#include <exception>
#include <memory>
#include <type_traits>

namespace warpjoin::binding {

/// A C++ exception as a JavaScript error with a `code`; a JavaScript exception as it was thrown. Allocates nothing in C++. Null
/// where the environment is ending and makes no values any more.
napi_value to_js_error(napi_env env, const std::exception_ptr& error) noexcept;

/// Throws the exception that is being handled into JavaScript.
void throw_into_js(napi_env env) noexcept;

/// What is behind `this` of a method of T: see handles.h.
template <class T>
std::shared_ptr<T> receiver(const Napi::CallbackInfo& info);

namespace detail {

template <class T>
T class_of(Napi::Value (T::*)(const Napi::CallbackInfo&));

template <auto function>
Napi::Value call(const Napi::CallbackInfo& info) {
  if constexpr (std::is_member_function_pointer_v<decltype(function)>) {
    const auto held = receiver<decltype(class_of(function))>(info);  // getters of arguments may release it
    return ((*held).*function)(info);
  } else {
    return function(info);
  }
}

}  // namespace detail

/// The callback for `Napi::Value function(const Napi::CallbackInfo&)`, a function or a method. JavaScript gets all that the
/// addon has to call in this form alone (scripts/lint.mjs), so no exception ends the process, whatever it is.
template <auto function>
napi_value entry(napi_env env, napi_callback_info info) noexcept {
  try {
    return detail::call<function>(Napi::CallbackInfo(env, info));
  } catch (...) {
    throw_into_js(env);
    return nullptr;
  }
}

/// A JavaScript function that calls `function`.
template <auto function>
Napi::Function make_function(Napi::Env env, const char* name) {
  napi_value made = nullptr;
  if (napi_create_function(env, name, NAPI_AUTO_LENGTH, entry<function>, nullptr, &made) != napi_ok) throw Napi::Error::New(env);
  return {env, made};
}

/// A method of a class that napi_define_class makes.
template <auto function>
napi_property_descriptor method(const char* name) {
  return {name, nullptr, entry<function>, nullptr, nullptr, nullptr, napi_default_method, nullptr};
}

}  // namespace warpjoin::binding
