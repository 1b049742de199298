// The addon's ParquetReader class (lib/io/parquet-native.ts): argument checks, promises; nothing else. It needs no engine.
#pragma once

#include <napi.h>

#include <memory>
#include <string>

#include "binding/file_class.h"
#include "binding/step.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "core/thread_pool.h"
#include "parquet/file_reader.h"

namespace warpjoin::binding {

class ParquetReaderWrap : public std::enable_shared_from_this<ParquetReaderWrap> {
 public:
  static Napi::Value define(Napi::Env env);
  static std::shared_ptr<ParquetReaderWrap> make(Napi::Env env, FileRoom room, const Napi::Object& options);
  ParquetReaderWrap(Napi::Env env, FileRoom room, std::string path);
  /// Results live on, and would keep memory that only the reader needs.
  ~ParquetReaderWrap() { memory_->close(); }
  ParquetReaderWrap(const ParquetReaderWrap&) = delete;
  ParquetReaderWrap& operator=(const ParquetReaderWrap&) = delete;

 private:
  Napi::Value open(const Napi::CallbackInfo& info);
  Napi::Value read(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);

  std::shared_ptr<Job> job_ = std::make_shared<Job>();
  std::shared_ptr<HostMemory> memory_;
  ThreadPool pool_;
  parquet::FileReader reader_;
  StepQueue queue_;  // last: joined before what its steps use goes
};

template <>
inline constexpr const char* kHandleName<ParquetReaderWrap> = "ParquetReader";

}  // namespace warpjoin::binding
