// What torch's CPU build lacks for autograd on tensors that say they are on a GPU: an accelerator with one
// device, whose streams and events do nothing. Loaded before torch's own libraries, so that they find it first.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

namespace at::accelerator {
std::optional<DeviceType> getAccelerator(bool) { return DeviceType::CUDA; }
bool isAccelerator(DeviceType type) { return type == DeviceType::CUDA; }
}  // namespace at::accelerator

namespace {

struct Generator : at::CPUGeneratorImpl {
  explicit Generator(uint64_t seed = c10::detail::getNonDeterministicRandom()) : at::CPUGeneratorImpl(seed) {
    device_ = Device(DeviceType::CUDA, 0);
  }
};

struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  at::Generator getNewGenerator(DeviceIndex) const override { return at::make_generator<Generator>(); }
};

struct Guard : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  static Device device() { return Device(DeviceType::CUDA, 0); }
  static Stream stream() { return Stream(Stream::DEFAULT, device()); }
  Device exchangeDevice(Device) const override { return device(); }
  Device getDevice() const override { return device(); }
  Stream getStream(Device) const noexcept override { return stream(); }
  Stream getNewStream(Device, int) const override { return stream(); }
  Stream exchangeStream(Stream) const noexcept override { return stream(); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

c10::impl::DeviceGuardImplRegistrar guard(DeviceType::CUDA, new Guard());

}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks);
}
