// Runs oneDNN's convolutions and matrix products on tensors of a compiled library; `SITES` at the end are generated.
//
// A site is an operator with its attributes. It makes a primitive for each combination of extents and threads, once, and
// packs constant weights once for each weight tensor that is alive, in the layout that oneDNN prefers on this machine.
// oneDNN's parallel loops run on libgomp's threads. So do the library's own kernels from the first call on: one pool.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// What is called of oneDNN 3's C interface (oneapi/dnnl/dnnl.h, Apache-2.0) and of libgomp's.
extern "C" {
typedef struct dnnl_engine* dnnl_engine_t;
typedef struct dnnl_stream* dnnl_stream_t;
typedef struct dnnl_memory* dnnl_memory_t;
typedef struct dnnl_memory_desc* dnnl_memory_desc_t;
typedef const struct dnnl_memory_desc* const_dnnl_memory_desc_t;
typedef struct dnnl_primitive* dnnl_primitive_t;
typedef struct dnnl_primitive_desc* dnnl_primitive_desc_t;
typedef struct dnnl_primitive_attr* dnnl_primitive_attr_t;
typedef struct dnnl_post_ops* dnnl_post_ops_t;
struct dnnl_exec_arg_t {
  int arg;
  dnnl_memory_t memory;
};
int dnnl_engine_create(dnnl_engine_t*, int kind, size_t index);
int dnnl_stream_create(dnnl_stream_t*, dnnl_engine_t, unsigned flags);
int dnnl_stream_wait(dnnl_stream_t);
int dnnl_memory_desc_create_with_strides(dnnl_memory_desc_t*, int rank, const int64_t* dims, int type, const int64_t* strides);
int dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t*, int rank, const int64_t* dims, int type, int tag);
int dnnl_memory_desc_clone(dnnl_memory_desc_t*, const_dnnl_memory_desc_t);
int dnnl_memory_desc_equal(const_dnnl_memory_desc_t, const_dnnl_memory_desc_t);
int dnnl_memory_desc_destroy(dnnl_memory_desc_t);
size_t dnnl_memory_desc_get_size(const_dnnl_memory_desc_t);
int dnnl_memory_create(dnnl_memory_t*, const_dnnl_memory_desc_t, dnnl_engine_t, void* handle);
int dnnl_memory_set_data_handle(dnnl_memory_t, void* handle);
int dnnl_memory_destroy(dnnl_memory_t);
int dnnl_post_ops_create(dnnl_post_ops_t*);
int dnnl_post_ops_append_eltwise(dnnl_post_ops_t, int algorithm, float alpha, float beta);
int dnnl_post_ops_append_binary(dnnl_post_ops_t, int algorithm, const_dnnl_memory_desc_t);
int dnnl_post_ops_destroy(dnnl_post_ops_t);
int dnnl_primitive_attr_create(dnnl_primitive_attr_t*);
int dnnl_primitive_attr_set_post_ops(dnnl_primitive_attr_t, dnnl_post_ops_t);
int dnnl_primitive_attr_set_scratchpad_mode(dnnl_primitive_attr_t, int mode);
int dnnl_primitive_attr_destroy(dnnl_primitive_attr_t);
int dnnl_convolution_forward_primitive_desc_create(dnnl_primitive_desc_t*, dnnl_engine_t, int propagation, int algorithm,
                                                   const_dnnl_memory_desc_t data, const_dnnl_memory_desc_t weights,
                                                   const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t out,
                                                   const int64_t* strides, const int64_t* dilates, const int64_t* before,
                                                   const int64_t* after, dnnl_primitive_attr_t);
int dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t*, dnnl_engine_t, const_dnnl_memory_desc_t data,
                                      const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
                                      const_dnnl_memory_desc_t out, dnnl_primitive_attr_t);
int dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t*, const_dnnl_memory_desc_t, dnnl_engine_t,
                                       const_dnnl_memory_desc_t, dnnl_engine_t, dnnl_primitive_attr_t);
const_dnnl_memory_desc_t dnnl_primitive_desc_query_md(dnnl_primitive_desc_t, int what, int index);
int dnnl_primitive_desc_destroy(dnnl_primitive_desc_t);
int dnnl_primitive_create(dnnl_primitive_t*, dnnl_primitive_desc_t);
int dnnl_primitive_execute(dnnl_primitive_t, dnnl_stream_t, int count, const dnnl_exec_arg_t*);
int dnnl_primitive_destroy(dnnl_primitive_t);

int omp_get_max_threads(void);
void omp_set_num_threads(int);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
void GOMP_barrier(void);

// Of tvm/runtime/c_backend_api.h.
typedef struct {
  void* sync_handle;
  int32_t num_task;
} TVMParallelGroupEnv;
typedef int (*FTVMParallelLambda)(int task, TVMParallelGroupEnv*, void* data);

// TVM's kernels launch their parallel loops through these variables of the library, which TVM sets when it loads it.
extern int (*__TVMBackendParallelLaunch)(FTVMParallelLambda, void*, int) __attribute__((weak));
extern int (*__TVMBackendParallelBarrier)(int, TVMParallelGroupEnv*) __attribute__((weak));
}

namespace {

using tvm::ffi::Tensor;
using tvm::ffi::TensorView;

enum { kBfloat16 = 2, kFloat32 = 3 };                                   // dnnl_data_type_t
enum { kCpu = 1, kInOrder = 1, kAnyLayout = 1, kUserScratchpad = 1 };  // engine, stream, format tag, scratchpad mode
enum { kInference = 96, kDirect = 1, kAdd = 0x1fff0, kUnimplemented = 3 };
enum { kQueryWeights = 131, kQueryScratchpad = 136 };
enum { kArgData = 1, kArgOut = 17, kArgWeights = 33, kArgBias = 41, kArgScratchpad = 80, kArgPostOp = 32768, kArgPostOpData = 2 };

void Check(int status, const char* what) {
  if (status != 0) TVM_FFI_THROW(RuntimeError) << "oneDNN: " << what << " failed with status " << status;
}

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, FreeMemory>;

Buffer Allocate(size_t bytes) {
  Buffer buffer(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
  if (buffer == nullptr) TVM_FFI_THROW(RuntimeError) << "oneDNN: no memory for " << bytes << " bytes";
  return buffer;
}

struct DestroyDescriptor {
  void operator()(dnnl_memory_desc_t descriptor) const { dnnl_memory_desc_destroy(descriptor); }
};
using Descriptor = std::unique_ptr<dnnl_memory_desc, DestroyDescriptor>;
using Extents = std::vector<int64_t>;

dnnl_engine_t Engine() {
  static dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    Check(dnnl_engine_create(&made, kCpu, 0), "making an engine");
    return made;
  }();
  return engine;
}

dnnl_stream_t Stream() {
  thread_local dnnl_stream_t stream = [] {
    dnnl_stream_t made = nullptr;
    Check(dnnl_stream_create(&made, Engine(), kInOrder), "making a stream");
    return made;
  }();
  return stream;
}

// ---- Threads ----------------------------------------------------------------------------------------------------------

std::atomic<int> wanted_threads{0};

// The calling thread's OpenMP loops use the library's number of threads meanwhile.
class ThreadScope {
 public:
  ThreadScope() : before_(omp_get_max_threads()), count_(wanted_threads.load(std::memory_order_relaxed)) {
    if (count_ == 0) count_ = before_;
    if (count_ != before_) omp_set_num_threads(count_);
  }
  ~ThreadScope() {
    if (count_ != before_) omp_set_num_threads(before_);
  }
  int count() const { return count_; }

 private:
  int before_;
  int count_;
};

struct Loop {
  FTVMParallelLambda body;
  void* data;
  int tasks;
  std::atomic<int> failures{0};
};

void RunTask(void* argument) {
  auto* loop = static_cast<Loop*>(argument);
  TVMParallelGroupEnv environment{nullptr, loop->tasks};
  // Fewer threads than tasks come where the process is at its limit of threads.
  for (int task = omp_get_thread_num(); task < loop->tasks; task += omp_get_num_threads())
    if (loop->body(task, &environment, loop->data) != 0) ++loop->failures;
}

int LaunchParallel(FTVMParallelLambda body, void* data, int tasks) {
  ThreadScope threads;
  Loop loop{body, data, tasks > 0 ? tasks : threads.count()};
  GOMP_parallel(RunTask, &loop, static_cast<unsigned>(loop.tasks), 0);
  return loop.failures.load() == 0 ? 0 : -1;
}

int WaitForOthers(int, TVMParallelGroupEnv*) {
  GOMP_barrier();
  return 0;
}

// TVM's threads and libgomp's would wait for work on the same cores, each in a loop. Loading a library sets the variables.
void ShareThreads() {
  if (&__TVMBackendParallelLaunch != nullptr && __TVMBackendParallelLaunch != LaunchParallel)
    __TVMBackendParallelLaunch = LaunchParallel;
  if (&__TVMBackendParallelBarrier != nullptr && __TVMBackendParallelBarrier != WaitForOthers)
    __TVMBackendParallelBarrier = WaitForOthers;
}

// ---- Sites ------------------------------------------------------------------------------------------------------------

// `algorithm`: oneDNN's of an elementwise operator, or kAdd for the next of the tensors behind the bias.
struct PostOp {
  int algorithm;
  float alpha;
  float beta;
  int type;  // of the tensor that is added
};

struct Operator {
  bool is_convolution;
  int type;             // of data and weights
  int out_type;
  bool is_constant;     // whether the weights are a parameter of the library
  bool has_bias;
  std::vector<PostOp> post_ops;
  Extents strides, dilation, before, after;  // convolutions: rows, columns
  int64_t groups;
};

int TypeOf(DLDataType type) { return type.code == kDLBfloat ? kBfloat16 : kFloat32; }

Extents ShapeOf(const TensorView& tensor) { return Extents(tensor.shape().begin(), tensor.shape().end()); }

char* At(const TensorView& tensor) { return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset(); }

Descriptor Strided(const Extents& extents, int type, const Extents& strides) {
  dnnl_memory_desc_t made = nullptr;
  int rank = static_cast<int>(extents.size());
  Check(dnnl_memory_desc_create_with_strides(&made, rank, extents.data(), type, strides.data()), "describing a tensor");
  return Descriptor(made);
}

Descriptor AnyLayout(const Extents& extents, int type) {
  dnnl_memory_desc_t made = nullptr;
  int rank = static_cast<int>(extents.size());
  Check(dnnl_memory_desc_create_with_tag(&made, rank, extents.data(), type, kAnyLayout), "describing weights");
  return Descriptor(made);
}

Descriptor Dense(const Extents& extents, int type) {
  Extents strides(extents.size());
  int64_t step = 1;
  for (size_t axis = extents.size(); axis-- > 0; step *= extents[axis]) strides[axis] = step;
  return Strided(extents, type, strides);
}

// An image [N, H, W, C] as oneDNN counts its axes: N, C, H, W.
Descriptor Image(const Extents& shape, int type) {
  int64_t height = shape[1], width = shape[2], channels = shape[3];
  return Strided({shape[0], channels, height, width}, type, {height * width * channels, 1, width * channels, channels});
}

// Leading axes of a product with a plain matrix are rows.
Extents Rows(const Extents& shape) {
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
  return {rows, shape.back()};
}

// Weights [O, H, W, I / groups] as oneDNN counts their axes, with the groups in front where there are several.
Extents KernelExtents(const Extents& shape, int64_t groups) {
  if (groups == 1) return {shape[0], shape[3], shape[1], shape[2]};
  return {groups, shape[0] / groups, shape[3], shape[1], shape[2]};
}

Descriptor Kernel(const Extents& shape, int type, int64_t groups) {
  int64_t row = shape[2] * shape[3], one = shape[1] * row;
  Extents strides{one, 1, row, shape[3]};
  if (groups > 1) strides.insert(strides.begin(), shape[0] / groups * one);
  return Strided(KernelExtents(shape, groups), type, strides);
}

tvm::ffi::ObjectPtr<tvm::ffi::TensorObj> ObjectOf(const Tensor& tensor) {
  return tvm::ffi::details::ObjectUnsafe::ObjectPtrFromObjectRef<tvm::ffi::TensorObj>(tensor);
}

// Weights in the layout of a primitive.
struct Packed {
  tvm::ffi::WeakObjectPtr<tvm::ffi::TensorObj> source;
  const void* identity;  // no other tensor has this address while `source` exists
  Buffer memory;
};

// Memory objects of one execution at a time.
struct Binding {
  std::vector<dnnl_exec_arg_t> arguments;
  ~Binding() {
    for (const dnnl_exec_arg_t& argument : arguments) dnnl_memory_destroy(argument.memory);
  }
};

// A primitive for one combination of extents and threads.
struct Variant {
  Extents key;
  int type;  // of the computation; kFloat32 where this machine has no bfloat16 primitive
  int out_type;
  dnnl_primitive_t primitive = nullptr;
  Descriptor data, plain_weights, weights, bias, out, scratchpad;
  std::vector<Descriptor> added;
  bool reorders = false;
  std::mutex lock;  // of what follows
  std::vector<std::shared_ptr<Packed>> packed;
  std::vector<std::unique_ptr<Binding>> idle;
};

void* Scratch(size_t bytes) {
  thread_local Buffer memory;
  thread_local size_t size = 0;
  if (bytes > size) {
    memory = Allocate(bytes);
    size = bytes;
  }
  return memory.get();
}

void Reorder(const_dnnl_memory_desc_t from, void* source, const_dnnl_memory_desc_t to, void* destination) {
  dnnl_primitive_desc_t described = nullptr;
  dnnl_primitive_t primitive = nullptr;
  Check(dnnl_reorder_primitive_desc_create(&described, from, Engine(), to, Engine(), nullptr), "describing a reorder");
  Check(dnnl_primitive_create(&primitive, described), "making a reorder");
  dnnl_primitive_desc_destroy(described);
  Binding binding;
  binding.arguments.resize(2);
  binding.arguments[0].arg = kArgData;
  binding.arguments[1].arg = kArgOut;
  Check(dnnl_memory_create(&binding.arguments[0].memory, from, Engine(), source), "binding memory");
  Check(dnnl_memory_create(&binding.arguments[1].memory, to, Engine(), destination), "binding memory");
  Check(dnnl_primitive_execute(primitive, Stream(), 2, binding.arguments.data()), "a reorder");
  dnnl_stream_wait(Stream());
  dnnl_primitive_destroy(primitive);
}

Descriptor Clone(const_dnnl_memory_desc_t descriptor) {
  dnnl_memory_desc_t made = nullptr;
  Check(dnnl_memory_desc_clone(&made, descriptor), "copying a description");
  return Descriptor(made);
}

class Site {
 public:
  explicit Site(Operator description) : operator_(std::move(description)) {}

  // Data, weights, the bias if there is one, then the tensors that are added, then the result.
  void Run(const TVMFFIAny* arguments, int count) {
    ShareThreads();
    ThreadScope threads;
    auto given = [arguments](int index) { return tvm::ffi::AnyView::CopyFromTVMFFIAny(arguments[index]); };
    TensorView data = given(0).cast<TensorView>();
    Tensor weights = given(1).cast<Tensor>();
    std::vector<TensorView> tensors;
    for (int index = 2; index < count; ++index) tensors.push_back(given(index).cast<TensorView>());
    for (int64_t extent : tensors.back().shape())
      if (extent == 0) return;
    Variant& variant = Find(ShapeOf(data), ShapeOf(TensorView(weights)), ShapeOf(tensors.back()), threads.count());
    if (variant.type == operator_.type) return Execute(&variant, At(data), weights, tensors, {});
    Widened(&variant, data, weights, tensors);
  }

  // Make the primitive and pack the weights before the first call.
  void Prepare(const Extents& data, const Tensor& weights, const Extents& out) {
    ShareThreads();
    ThreadScope threads;
    Variant& variant = Find(data, ShapeOf(TensorView(weights)), out, threads.count());
    if (operator_.is_constant && variant.reorders) PackedWeights(&variant, weights);
  }

 private:
  Variant& Find(const Extents& data, const Extents& weights, const Extents& out, int threads) {
    for (Node* node = variants_.load(std::memory_order_acquire); node != nullptr; node = node->next)
      if (Matches(node->variant.key, data, weights, threads)) return node->variant;
    std::lock_guard<std::mutex> guard(making_);
    Node* head = variants_.load(std::memory_order_acquire);
    for (Node* node = head; node != nullptr; node = node->next)
      if (Matches(node->variant.key, data, weights, threads)) return node->variant;
    auto node = std::make_unique<Node>();
    node->next = head;
    node->variant.key = data;
    node->variant.key.insert(node->variant.key.end(), weights.begin(), weights.end());
    node->variant.key.push_back(threads);
    if (!Make(&node->variant, data, weights, out, operator_.type) && !Make(&node->variant, data, weights, out, kFloat32))
      TVM_FFI_THROW(RuntimeError) << "oneDNN has no implementation of a convolution or product on this machine; "
                                     "build with [kernels] conv2d = \"tvm\", matmul = \"tvm\"";
    Node* made = node.release();
    variants_.store(made, std::memory_order_release);
    return made->variant;
  }

  static bool Matches(const Extents& key, const Extents& data, const Extents& weights, int threads) {
    return key.size() == data.size() + weights.size() + 1 && key.back() == threads &&
           std::memcmp(key.data(), data.data(), data.size() * sizeof(int64_t)) == 0 &&
           std::memcmp(key.data() + data.size(), weights.data(), weights.size() * sizeof(int64_t)) == 0;
  }

  // Whether oneDNN has a primitive for these extents that computes in `type`.
  bool Make(Variant* variant, const Extents& data, const Extents& weights, const Extents& out, int type) {
    variant->type = type;
    variant->added.clear();
    variant->out_type = type == operator_.type ? operator_.out_type : kFloat32;
    Extents weight_extents = weights;
    if (operator_.is_convolution) {
      variant->data = Image(data, type);
      variant->out = Image(out, variant->out_type);
      variant->plain_weights = Kernel(weights, type, operator_.groups);
      weight_extents = KernelExtents(weights, operator_.groups);
    } else {
      bool is_matrix = weights.size() == 2;
      variant->data = Dense(is_matrix ? Rows(data) : data, type);
      variant->out = Dense(is_matrix ? Rows(out) : out, variant->out_type);
      variant->plain_weights = Dense(weights, type);
    }
    bool chooses = operator_.is_constant || operator_.is_convolution;
    Descriptor wanted = chooses ? AnyLayout(weight_extents, type) : Clone(variant->plain_weights.get());
    if (operator_.has_bias) {
      Extents extents{out.back()};
      if (!operator_.is_convolution) extents.insert(extents.begin(), weights.size() == 2 ? 1 : weights.size() - 1, 1);
      variant->bias = Dense(extents, kFloat32);
    }
    for (const PostOp& item : operator_.post_ops) {
      if (item.algorithm != kAdd) continue;
      int added = type == operator_.type ? item.type : static_cast<int>(kFloat32);
      bool is_matrix = weights.size() == 2;
      variant->added.push_back(operator_.is_convolution ? Image(out, added) : Dense(is_matrix ? Rows(out) : out, added));
    }
    return Describe(variant, wanted.get());
  }

  bool Describe(Variant* variant, const_dnnl_memory_desc_t wanted) {
    dnnl_post_ops_t post_ops = nullptr;
    dnnl_primitive_attr_t attributes = nullptr;
    Check(dnnl_post_ops_create(&post_ops), "making post-ops");
    size_t added = 0;
    for (const PostOp& item : operator_.post_ops) {
      if (item.algorithm == kAdd)
        Check(dnnl_post_ops_append_binary(post_ops, kAdd, variant->added[added++].get()), "adding a sum");
      else
        Check(dnnl_post_ops_append_eltwise(post_ops, item.algorithm, item.alpha, item.beta), "adding a map");
    }
    Check(dnnl_primitive_attr_create(&attributes), "making attributes");
    Check(dnnl_primitive_attr_set_post_ops(attributes, post_ops), "setting post-ops");
    Check(dnnl_primitive_attr_set_scratchpad_mode(attributes, kUserScratchpad), "setting the scratchpad");
    dnnl_primitive_desc_t described = nullptr;
    const Operator& op = operator_;
    int status = op.is_convolution
                     ? dnnl_convolution_forward_primitive_desc_create(
                           &described, Engine(), kInference, kDirect, variant->data.get(), wanted, variant->bias.get(),
                           variant->out.get(), op.strides.data(), op.dilation.data(), op.before.data(), op.after.data(),
                           attributes)
                     : dnnl_matmul_primitive_desc_create(&described, Engine(), variant->data.get(), wanted,
                                                         variant->bias.get(), variant->out.get(), attributes);
    dnnl_primitive_attr_destroy(attributes);
    dnnl_post_ops_destroy(post_ops);
    if (status == kUnimplemented) return false;
    Check(status, "describing a primitive");
    variant->weights = Clone(dnnl_primitive_desc_query_md(described, kQueryWeights, 0));
    variant->scratchpad = Clone(dnnl_primitive_desc_query_md(described, kQueryScratchpad, 0));
    variant->reorders = dnnl_memory_desc_equal(variant->weights.get(), variant->plain_weights.get()) == 0;
    status = dnnl_primitive_create(&variant->primitive, described);
    dnnl_primitive_desc_destroy(described);
    Check(status, "making a primitive");
    return true;
  }

  // The weights in the layout of the primitive; kept while the tensor that they come from is alive.
  std::shared_ptr<Packed> PackedWeights(Variant* variant, const Tensor& weights) {
    std::lock_guard<std::mutex> guard(variant->lock);
    const void* identity = ObjectOf(weights).get();
    for (const std::shared_ptr<Packed>& known : variant->packed)
      if (known->identity == identity) return known;
    std::vector<std::shared_ptr<Packed>> alive;
    for (std::shared_ptr<Packed>& known : variant->packed)
      if (known->source.lock() != nullptr) alive.push_back(std::move(known));
    auto made = Pack(*variant, weights);
    alive.push_back(made);
    variant->packed = std::move(alive);
    return made;
  }

  std::shared_ptr<Packed> Pack(const Variant& variant, const Tensor& weights) {
    auto packed = std::make_shared<Packed>();
    packed->source = ObjectOf(weights);
    packed->identity = ObjectOf(weights).get();
    packed->memory = Allocate(dnnl_memory_desc_get_size(variant.weights.get()));
    Descriptor given = GivenWeights(variant, weights);
    Reorder(given.get(), At(TensorView(weights)), variant.weights.get(), packed->memory.get());
    return packed;
  }

  Descriptor GivenWeights(const Variant& variant, const Tensor& weights) {
    if (variant.type == operator_.type) return Clone(variant.plain_weights.get());
    Extents shape = ShapeOf(TensorView(weights));
    return operator_.is_convolution ? Kernel(shape, operator_.type, operator_.groups) : Dense(shape, operator_.type);
  }

  void Execute(Variant* variant, char* data, const Tensor& weights, const std::vector<TensorView>& rest,
               const std::vector<void*>& replaced) {
    std::shared_ptr<Packed> packed;
    void* weight_memory = At(TensorView(weights));
    if (variant->reorders || variant->type != operator_.type) {
      packed = operator_.is_constant ? PackedWeights(variant, weights) : Pack(*variant, weights);
      weight_memory = packed->memory.get();
    }
    std::unique_ptr<Binding> binding = Take(variant);
    size_t next = 0;
    auto set = [&](void* memory) {
      Check(dnnl_memory_set_data_handle(binding->arguments[next++].memory, memory), "binding memory");
    };
    set(data);
    set(weight_memory);
    set(Scratch(dnnl_memory_desc_get_size(variant->scratchpad.get())));
    for (size_t index = 0; index < rest.size(); ++index)
      set(index < replaced.size() && replaced[index] != nullptr ? replaced[index] : At(rest[index]));
    int count = static_cast<int>(binding->arguments.size());
    int status = dnnl_primitive_execute(variant->primitive, Stream(), count, binding->arguments.data());
    dnnl_stream_wait(Stream());
    std::lock_guard<std::mutex> guard(variant->lock);
    variant->idle.push_back(std::move(binding));
    Check(status, "a primitive");
  }

  std::unique_ptr<Binding> Take(Variant* variant) {
    {
      std::lock_guard<std::mutex> guard(variant->lock);
      if (!variant->idle.empty()) {
        auto binding = std::move(variant->idle.back());
        variant->idle.pop_back();
        return binding;
      }
    }
    auto binding = std::make_unique<Binding>();
    auto add = [&](int argument, const Descriptor& descriptor) {
      dnnl_memory_t memory = nullptr;
      Check(dnnl_memory_create(&memory, descriptor.get(), Engine(), nullptr), "making a memory object");
      binding->arguments.push_back({argument, memory});
    };
    add(kArgData, variant->data);
    add(kArgWeights, variant->weights);
    add(kArgScratchpad, variant->scratchpad);
    if (operator_.has_bias) add(kArgBias, variant->bias);
    size_t added = 0;
    for (size_t index = 0; index < operator_.post_ops.size(); ++index)
      if (operator_.post_ops[index].algorithm == kAdd)
        add(kArgPostOp * static_cast<int>(index + 1) | kArgPostOpData, variant->added[added++]);
    add(kArgOut, variant->out);
    return binding;
  }

  // Without a bfloat16 primitive on this machine: in float32, on converted copies.
  void Widened(Variant* variant, const TensorView& data, const Tensor& weights, const std::vector<TensorView>& tensors) {
    std::vector<Buffer> copies;
    auto widened = [&](const TensorView& tensor, bool is_input) -> void* {
      if (TypeOf(tensor.dtype()) == kFloat32) return nullptr;
      int64_t size = 1;
      for (int64_t extent : tensor.shape()) size *= extent;
      copies.push_back(Allocate(static_cast<size_t>(size) * 4));
      auto* wide = static_cast<uint32_t*>(copies.back().get());
      const auto* narrow = reinterpret_cast<const uint16_t*>(At(tensor));
      for (int64_t index = 0; is_input && index < size; ++index) wide[index] = static_cast<uint32_t>(narrow[index]) << 16;
      return wide;
    };
    void* wide_data = widened(data, true);
    std::vector<void*> replaced;
    for (size_t index = 0; index < tensors.size(); ++index)
      replaced.push_back(widened(tensors[index], index + 1 < tensors.size()));
    Execute(variant, static_cast<char*>(wide_data), weights, tensors, replaced);
    if (replaced.back() == nullptr) return;
    const TensorView& out = tensors.back();
    int64_t size = 1;
    for (int64_t extent : out.shape()) size *= extent;
    const auto* wide = static_cast<const uint32_t*>(replaced.back());
    auto* narrow = reinterpret_cast<uint16_t*>(At(out));
    for (int64_t index = 0; index < size; ++index) {
      uint32_t bits = wide[index];
      bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;  // rounding would carry its bits into the sign
      narrow[index] = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
  }

  struct Node {
    Variant variant;
    Node* next = nullptr;
  };
  Operator operator_;
  std::atomic<Node*> variants_{nullptr};
  std::mutex making_;
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Threads of oneDNN's and the library's own loops; 0: as many as libgomp takes.
void SetThreads(int64_t count) { wanted_threads.store(static_cast<int>(count)); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(onednn_set_threads, SetThreads);

}  // namespace

#define EXPORT_SITE(name, ...)                                                                              \
  static Site& site_##name() {                                                                              \
    static Site& site = *new Site(Operator{__VA_ARGS__});                                                   \
    return site;                                                                                            \
  }                                                                                                         \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##name(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny*) { \
    TVM_FFI_SAFE_CALL_BEGIN();                                                                              \
    site_##name().Run(arguments, count);                                                                    \
    TVM_FFI_SAFE_CALL_END();                                                                                \
  }

// SITES
