// Runs an artifact folder on a ramp of values and prints its outputs: main artifacts/minilm
#include <modelbuild.h>

#include <cstdio>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s ARTIFACT_FOLDER\n", argv[0]);
    return 2;
  }
  modelbuild::Model model(argv[1]);
  std::vector<tvm::ffi::Tensor> inputs;
  for (const modelbuild::TensorInfo& info : model.inputs()) {
    tvm::ffi::Tensor tensor = modelbuild::Empty(info, model.LargestShape(info));
    for (int64_t index = 0; index < tensor.numel(); ++index) {
      if (info.dtype.code == kDLFloat) static_cast<float*>(tensor.data_ptr())[index] = (index % 16) / 16.0f;
      if (info.dtype.code == kDLInt) static_cast<int64_t*>(tensor.data_ptr())[index] = 1 + index % 16;
    }
    inputs.push_back(tensor);
  }
  std::vector<tvm::ffi::Tensor> outputs = model.Run(inputs);
  for (size_t index = 0; index < outputs.size(); ++index) {
    const auto* values = static_cast<const float*>(outputs[index].data_ptr());
    std::printf("%s:", model.outputs()[index].name.c_str());
    for (int64_t position = 0; position < std::min<int64_t>(5, outputs[index].numel()); ++position)
      std::printf(" %.6g", values[position]);
    std::printf("\n");
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
