// The addon's ParquetWriter class (lib/io/parquet-writer-native.ts): argument checks, promises; nothing else. It needs no engine.
#pragma once

#include <napi.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "binding/convert.h"
#include "binding/file_class.h"
#include "binding/step.h"
#include "core/host_memory.h"
#include "core/job.h"
#include "core/thread_pool.h"
#include "parquet/file_writer.h"

namespace warpjoin::binding {

class ParquetWriterWrap : public std::enable_shared_from_this<ParquetWriterWrap> {
 public:
  static Napi::Value define(Napi::Env env);
  static std::shared_ptr<ParquetWriterWrap> make(Napi::Env env, FileRoom room, const Napi::Object& options);
  ParquetWriterWrap(Napi::Env env, FileRoom room, parquet::WriterOptions options);
  /// Bytes live on, and would keep memory that only the writer needs.
  ~ParquetWriterWrap() { memory_->close(); }
  ParquetWriterWrap(const ParquetWriterWrap&) = delete;
  ParquetWriterWrap& operator=(const ParquetWriterWrap&) = delete;

 private:
  using Parts = std::vector<parquet::FileWriter::Part>;
  /// What a call has handed to JavaScript.
  struct Given {
    Napi::ObjectReference buffers;
    std::vector<BufferOwner> owners;  ///< null where JavaScript has a copy
  };

  Napi::Value begin(const Napi::CallbackInfo& info);
  Napi::Value write(const Napi::CallbackInfo& info);
  Napi::Value finish(const Napi::CallbackInfo& info);
  Napi::Value reclaim(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);

  Napi::Value enqueue(std::vector<std::shared_ptr<void>> inputs, std::function<Parts()> work);
  MakeResult to_progress(Parts parts);

  std::shared_ptr<Job> job_ = std::make_shared<Job>();
  std::shared_ptr<HostMemory> memory_;
  ThreadPool pool_;
  parquet::FileWriter writer_;
  std::shared_ptr<void> views_;  ///< what the writer's columns refer to; for the JavaScript thread alone
  std::deque<Given> given_;
  bool finished_ = false;  // set by a step
  bool failed_ = false;    ///< a call has thrown: what it left is not to be written
  StepQueue queue_;        // last: joined before what its steps use goes
};

template <>
inline constexpr const char* kHandleName<ParquetWriterWrap> = "ParquetWriter";

}  // namespace warpjoin::binding
