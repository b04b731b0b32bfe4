// Loads an artifact folder (manifest.json, weights, lib.so) in C++ over tvm-ffi; needs libtvm_ffi and libtvm_runtime.
#ifndef MODELBUILD_H_
#define MODELBUILD_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace modelbuild {

namespace ffi = tvm::ffi;

constexpr size_t kAlignment = 64;  // TVM's kernels use aligned vector loads
constexpr DLDevice kCpu{kDLCPU, 0};

constexpr int64_t kSymbolic = -1;  // an extent that each call may choose, within the bounds of Model::dims()

// Smallest and largest extent of a symbolic dimension, both included.
struct Bounds {
  int64_t min;
  int64_t max;
};

// Name, extents and element type of an input or output.
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;      // kSymbolic where the extent is symbolic
  std::vector<std::string> dims;   // its dimension's name there (of outputs also an expression of several), else ""
  DLDataType dtype;
};

namespace detail {

struct AlignedMemory {
  void AllocData(DLTensor* tensor) {
    size_t size = (ffi::GetDataSize(*tensor) + kAlignment - 1) / kAlignment * kAlignment;
    tensor->data = std::aligned_alloc(kAlignment, std::max(size, kAlignment));
    if (tensor->data == nullptr) throw std::bad_alloc();
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

// A file mapped privately; tensors that lie in it keep it alive.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status) != 0) throw std::runtime_error(path + ": cannot be read");
    size_ = static_cast<size_t>(status.st_size);
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (memory_ == MAP_FAILED) throw std::runtime_error(path + ": cannot be mapped");
  }
  ~MappedFile() { munmap(memory_, size_); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  char* data() const { return static_cast<char*>(memory_); }
  size_t size() const { return size_; }

 private:
  void* memory_;
  size_t size_;
};

struct MappedMemory {
  std::shared_ptr<MappedFile> file;
  char* data;
  void AllocData(DLTensor* tensor) { tensor->data = data; }
  void FreeData(DLTensor*) {}
};

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read; give the folder of an artifact");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline ffi::Any Get(const ffi::json::Object& object, const char* key) { return object[ffi::String(key)]; }

inline std::string GetString(const ffi::json::Object& object, const char* key) {
  return std::string(Get(object, key).cast<ffi::String>());
}

inline std::vector<int64_t> GetIntegers(const ffi::json::Object& object, const char* key) {
  std::vector<int64_t> values;
  for (const ffi::Any& value : Get(object, key).cast<ffi::json::Array>()) values.push_back(value.cast<int64_t>());
  return values;
}

inline DLDataType ParseType(const std::string& name) { return ffi::StringToDLDataType(ffi::String(name)); }

inline std::vector<TensorInfo> GetTensors(const ffi::json::Object& manifest, const char* key) {
  std::vector<TensorInfo> found;
  for (const ffi::Any& value : Get(manifest, key).cast<ffi::json::Array>()) {
    auto item = value.cast<ffi::json::Object>();
    TensorInfo info{GetString(item, "name"), {}, {}, ParseType(GetString(item, "dtype"))};
    for (const ffi::Any& extent : Get(item, "shape").cast<ffi::json::Array>()) {
      auto number = extent.as<int64_t>();
      info.shape.push_back(number ? *number : kSymbolic);
      info.dims.push_back(number ? std::string() : std::string(extent.cast<ffi::String>()));
    }
    found.push_back(std::move(info));
  }
  return found;
}

inline std::string Describe(DLDataType dtype, const std::vector<int64_t>& shape, const std::vector<std::string>& dims = {}) {
  std::string text = std::string(ffi::DLDataTypeToString(dtype)) + " [";
  for (size_t axis = 0; axis < shape.size(); ++axis)
    text += (axis ? ", " : "") + (shape[axis] == kSymbolic ? dims[axis] : std::to_string(shape[axis]));
  return text + "]";
}

// Maps the tensors of a safetensors file; only those that lie misaligned are copied.
inline void MapWeights(const std::string& path, const std::vector<TensorInfo>& params,
                       std::map<std::string, ffi::Tensor>* tensors) {
  auto file = std::make_shared<MappedFile>(path);
  uint64_t header_size = 0;
  if (file->size() >= 8) std::memcpy(&header_size, file->data(), 8);
  if (file->size() < 8 || header_size > file->size() - 8) throw std::runtime_error(path + ": no safetensors, or cut off");
  auto header = ffi::json::Parse(ffi::String(file->data() + 8, header_size)).cast<ffi::json::Object>();
  char* data = file->data() + 8 + header_size;
  for (const TensorInfo& param : params) {
    if (header.count(ffi::String(param.name)) == 0) continue;
    auto item = Get(header, param.name.c_str()).cast<ffi::json::Object>();
    std::vector<int64_t> offsets = GetIntegers(item, "data_offsets");
    size_t size = static_cast<size_t>(offsets[1] - offsets[0]);
    size_t wanted = (param.dtype.bits * param.dtype.lanes + 7) / 8;
    for (int64_t extent : param.shape) wanted *= static_cast<size_t>(extent);
    if (data + offsets[1] > file->data() + file->size() || size != wanted || GetIntegers(item, "shape") != param.shape)
      throw std::runtime_error(path + ": " + param.name + " is cut off or has another shape than the manifest says");
    char* start = data + offsets[0];
    ffi::ShapeView shape(param.shape.data(), param.shape.size());
    if (reinterpret_cast<uintptr_t>(start) % kAlignment == 0) {
      tensors->insert({param.name, ffi::Tensor::FromNDAlloc(MappedMemory{file, start}, shape, param.dtype, kCpu)});
    } else {
      auto copy = ffi::Tensor::FromNDAlloc(AlignedMemory(), shape, param.dtype, kCpu);
      std::memcpy(copy.data_ptr(), start, size);
      tensors->insert({param.name, copy});
    }
  }
}

}  // namespace detail

// An uninitialized CPU tensor of `shape` at the alignment that the kernels need.
inline ffi::Tensor Empty(const TensorInfo& info, const std::vector<int64_t>& shape) {
  return ffi::Tensor::FromNDAlloc(detail::AlignedMemory(), ffi::ShapeView(shape.data(), shape.size()), info.dtype, kCpu);
}

// The same for a tensor without symbolic extents.
inline ffi::Tensor Empty(const TensorInfo& info) {
  if (std::find(info.shape.begin(), info.shape.end(), kSymbolic) != info.shape.end())
    throw std::invalid_argument(info.name + " has symbolic extents; give Empty its shape");
  return Empty(info, info.shape);
}

// A compiled model with its weights. Not for several threads at once: one Model a thread.
class Model {
 public:
  // `threads`: size of TVM's pool; -1 takes the manifest's, 0 one for each CPU. Throws std::runtime_error.
  explicit Model(const std::string& folder, int threads = -1) {
    auto manifest = ffi::json::Parse(ffi::String(detail::ReadText(folder + "/manifest.json"))).cast<ffi::json::Object>();
    if (detail::Get(manifest, "schema").cast<int64_t>() != 1) throw std::runtime_error(folder + ": unknown manifest schema");
    inputs_ = detail::GetTensors(manifest, "inputs");
    outputs_ = detail::GetTensors(manifest, "outputs");
    for (const auto& [name, bounds] : detail::Get(manifest, "dims").cast<ffi::json::Object>()) {
      auto item = bounds.cast<ffi::json::Object>();
      dims_[std::string(name.cast<ffi::String>())] = {detail::Get(item, "min").cast<int64_t>(),
                                                      detail::Get(item, "max").cast<int64_t>()};
    }
    auto target = detail::Get(manifest, "target").cast<ffi::json::Object>();
    if (threads < 0) threads = static_cast<int>(detail::Get(target, "threads").cast<int64_t>());
    SetThreads(threads);
    LoadWeights(folder, manifest);
    auto library = detail::Get(manifest, "library").cast<ffi::json::Object>();
    // libgomp's threads, which libraries that call oneDNN use, would take up to 20 ms from others while they wait for work.
    if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "4000", 0);
    ffi::Module module = ffi::Module::LoadFromFile(folder + "/" + detail::GetString(library, "path"));
    auto machine = module->GetFunction("vm_load_executable", false).value()().cast<ffi::Module>();
    constexpr int kPooledAllocator = 2;
    machine->GetFunction("vm_initialization", false).value()(static_cast<int>(kDLCPU), 0, kPooledAllocator);
    entry_ = machine->GetFunction(detail::GetString(manifest, "entry"), false).value();
    // A library that calls oneDNN makes its primitives and packs its weights now, so that the first call need not.
    if (auto set_threads = module->GetFunction("onednn_set_threads", true))
      (*set_threads)(threads > 0 ? threads : static_cast<int>(std::thread::hardware_concurrency()));
    if (auto prepare = module->GetFunction("onednn_prepare", true))
      (*prepare)(ffi::Array<ffi::Tensor>(weights_.begin(), weights_.end()));
  }

  const std::vector<TensorInfo>& inputs() const { return inputs_; }
  const std::vector<TensorInfo>& outputs() const { return outputs_; }
  const std::map<std::string, Bounds>& dims() const { return dims_; }

  // The shape of an input where every symbolic dimension has its largest extent.
  std::vector<int64_t> LargestShape(const TensorInfo& info) const {
    std::vector<int64_t> shape = info.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] == kSymbolic) shape[axis] = dims_.at(info.dims[axis]).max;
    return shape;
  }

  // Runs the model on tensors in the order of inputs(), which must be compact and 64-byte aligned (see Empty);
  // the outputs come in the order of outputs(). Throws std::invalid_argument for a wrong count, shape or type.
  std::vector<ffi::Tensor> Run(const std::vector<ffi::Tensor>& inputs) const {
    Check(inputs);
    std::vector<ffi::AnyView> arguments(inputs.begin(), inputs.end());
    arguments.insert(arguments.end(), weights_.begin(), weights_.end());
    ffi::Any result;
    entry_.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
    if (auto alone = result.as<ffi::Tensor>()) return {*alone};
    std::vector<ffi::Tensor> outputs;
    for (const ffi::Any& item : result.cast<ffi::Array<ffi::Any>>()) outputs.push_back(item.cast<ffi::Tensor>());
    return outputs;
  }

 private:
  void LoadWeights(const std::string& folder, const ffi::json::Object& manifest) {
    std::vector<TensorInfo> params = detail::GetTensors(manifest, "params");
    std::map<std::string, ffi::Tensor> tensors;
    for (const ffi::Any& value : detail::Get(manifest, "weights").cast<ffi::json::Array>()) {
      auto item = value.cast<ffi::json::Object>();
      detail::MapWeights(folder + "/" + detail::GetString(item, "path"), params, &tensors);
    }
    for (const TensorInfo& param : params) {
      auto found = tensors.find(param.name);
      if (found == tensors.end()) throw std::runtime_error(folder + ": the weights lack " + param.name);
      weights_.push_back(found->second);
    }
  }

  void Check(const std::vector<ffi::Tensor>& inputs) const {
    if (inputs.size() != inputs_.size())
      throw std::invalid_argument("the model takes " + std::to_string(inputs_.size()) + " inputs");
    std::map<std::string, int64_t> extents;
    for (size_t index = 0; index < inputs.size(); ++index) {
      const ffi::Tensor& tensor = inputs[index];
      const TensorInfo& info = inputs_[index];
      std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
      if (!Fits(shape, info, &extents) || tensor.dtype() != info.dtype)
        throw std::invalid_argument("input " + info.name + " is " + detail::Describe(tensor.dtype(), shape) + ", not " +
                                    detail::Describe(info.dtype, info.shape, info.dims) + DescribeDims());
      if (!tensor.IsContiguous() || reinterpret_cast<uintptr_t>(tensor.data_ptr()) % kAlignment != 0)
        throw std::invalid_argument("input " + info.name + " is not compact or not 64-byte aligned; make it by Empty");
    }
  }

  // Whether a shape has the declared extents, symbolic ones within their bounds and the same at every place.
  bool Fits(const std::vector<int64_t>& shape, const TensorInfo& info, std::map<std::string, int64_t>* extents) const {
    if (shape.size() != info.shape.size()) return false;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (info.shape[axis] != kSymbolic) {
        if (shape[axis] != info.shape[axis]) return false;
        continue;
      }
      const Bounds& bounds = dims_.at(info.dims[axis]);
      if (shape[axis] < bounds.min || shape[axis] > bounds.max) return false;
      if (extents->insert({info.dims[axis], shape[axis]}).first->second != shape[axis]) return false;
    }
    return true;
  }

  std::string DescribeDims() const {
    std::string text;
    for (const auto& [name, bounds] : dims_)
      text += "; " + name + " is within " + std::to_string(bounds.min) + ".." + std::to_string(bounds.max);
    return text;
  }

  // TVM's own default is half the CPUs, pinned together with the calling thread.
  static void SetThreads(int count) {
    setenv("TVM_BIND_THREADS", "0", 0);
    if (count == 0) count = static_cast<int>(std::thread::hardware_concurrency());
    ffi::Array<ffi::String> cpus;
    for (int index = 0; index < count; ++index) cpus.push_back(std::to_string(index));
    constexpr int kBigCores = 1;
    ffi::Function::GetGlobalRequired("runtime.config_threadpool")(kBigCores, count, cpus);
  }

  std::vector<TensorInfo> inputs_;
  std::vector<TensorInfo> outputs_;
  std::map<std::string, Bounds> dims_;
  std::vector<ffi::Tensor> weights_;
  ffi::Function entry_;
};

}  // namespace modelbuild

#endif  // MODELBUILD_H_
