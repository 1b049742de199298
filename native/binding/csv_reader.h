// The addon's CsvReader class (lib/io/csv-native.ts): argument checks, promises; nothing else. It needs no engine.
#pragma once

#include <napi.h>

#include <memory>

#include "binding/file_class.h"
#include "binding/step.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "core/thread_pool.h"
#include "csv/reader.h"

namespace warpjoin::binding {

class CsvReaderWrap : public std::enable_shared_from_this<CsvReaderWrap> {
 public:
  static Napi::Value define(Napi::Env env);
  static std::shared_ptr<CsvReaderWrap> make(Napi::Env env, FileRoom room, const Napi::Object& options);
  CsvReaderWrap(Napi::Env env, FileRoom room, csv::ReaderOptions options);
  /// Results live on, and would keep memory that only the reader needs.
  ~CsvReaderWrap() { memory_->close(); }
  CsvReaderWrap(const CsvReaderWrap&) = delete;
  CsvReaderWrap& operator=(const CsvReaderWrap&) = delete;

 private:
  Napi::Value push(const Napi::CallbackInfo& info);
  Napi::Value finish(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);

  /// Queues work on the reader; resolves to what it found.
  Napi::Value enqueue(Napi::Env env, std::function<void()> work);
  MakeResult progress();

  std::shared_ptr<Job> job_ = std::make_shared<Job>();
  std::shared_ptr<HostMemory> memory_;
  ThreadPool pool_;
  csv::Reader reader_;
  bool finished_ = false;  // set by a step
  bool failed_ = false;    ///< a call has thrown: what it left is not to be read
  StepQueue queue_;        // last: joined before what its steps use goes
};

template <>
inline constexpr const char* kHandleName<CsvReaderWrap> = "CsvReader";

}  // namespace warpjoin::binding
