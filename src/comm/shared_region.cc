#include "comm/shared_region.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "comm/deadline.h"

namespace jige::comm {
namespace {

constexpr uint64_t kRegionMagic = 0x334D4353'4547494A;  // "JIGESCM3"
constexpr int64_t kHeadBytes = 4096;

struct Head {
  uint64_t magic;
  RegionShape shape;
};

}  // namespace

Result<SharedRegion> SharedRegion::for_threads(const RegionShape& shape) {
  SharedRegion region(shape, -1);
  JIGE_DO(region.map());
  region.construct();
  return region;
}

Result<SharedRegion> SharedRegion::for_processes(const RegionShape& shape) {
  const int fd = memfd_create("jige-collectives", MFD_CLOEXEC);
  if (fd < 0) {
    return fail(Code::kUnsupported, "no shared memory: {}", std::strerror(errno));
  }
  SharedRegion region(shape, fd);
  if (ftruncate(fd, region.total_bytes()) != 0) {
    return fail(Code::kExhausted, "no {} bytes of shared memory: {}", region.total_bytes(),
                std::strerror(errno));
  }
  JIGE_DO(region.map());
  region.construct();
  return region;
}

Result<SharedRegion> SharedRegion::attach(int fd, const RegionShape& shape) {
  SharedRegion region(shape, fd);
  struct stat info = {};
  if (fstat(fd, &info) != 0 || info.st_size != region.total_bytes()) {
    return fail(Code::kCorrupt, "the shared memory has {} bytes, not {}", info.st_size,
                region.total_bytes());
  }
  JIGE_DO(region.map());
  const auto* head = reinterpret_cast<const Head*>(region.base_);
  if (head->magic != kRegionMagic || !(head->shape == shape)) {
    return fail(Code::kCorrupt, "the shared memory was made for other rings or another build");
  }
  return region;
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : shape_(other.shape_),
      fd_(std::exchange(other.fd_, -1)),
      base_(std::exchange(other.base_, nullptr)) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(fd_, other.fd_);
  std::swap(base_, other.base_);
  return *this;
}

SharedRegion::~SharedRegion() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(total_bytes()));
  if (fd_ >= 0) ::close(fd_);
}

RankStatus& SharedRegion::status(int rank) const {
  return reinterpret_cast<RankStatus*>(base_ + kHeadBytes)[rank];
}

StreamControl& SharedRegion::control(int stream) const {
  return reinterpret_cast<StreamControl*>(base_ + control_offset())[stream];
}

std::byte* SharedRegion::buffer(int stream) const {
  const int small = std::min(stream, shape_.small_streams);
  const int64_t offset = small * shape_.small_bytes + (stream - small) * shape_.large_bytes;
  return base_ + buffer_offset() + offset;
}

int64_t SharedRegion::capacity(int stream) const {
  return stream < shape_.small_streams ? shape_.small_bytes : shape_.large_bytes;
}

int64_t SharedRegion::control_offset() const {
  return kHeadBytes + static_cast<int64_t>(sizeof(RankStatus)) * shape_.size;
}

int64_t SharedRegion::buffer_offset() const {
  const int64_t end =
      control_offset() + static_cast<int64_t>(sizeof(StreamControl)) * stream_count();
  return (end + 4095) / 4096 * 4096;
}

int64_t SharedRegion::total_bytes() const {
  return buffer_offset() + shape_.small_streams * shape_.small_bytes +
         shape_.large_streams * shape_.large_bytes;
}

Status SharedRegion::map() {
  const int flags = fd_ >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* base =
      mmap(nullptr, static_cast<size_t>(total_bytes()), PROT_READ | PROT_WRITE, flags, fd_, 0);
  if (base == MAP_FAILED) {
    return fail(Code::kExhausted, "no {} bytes of shared memory: {}", total_bytes(),
                std::strerror(errno));
  }
  base_ = static_cast<std::byte*>(base);
  return {};
}

void SharedRegion::construct() {
  for (int r = 0; r < shape_.size; ++r) {
    new (&status(r)) RankStatus;
    status(r).heard_ns.store(monotonic_ns());
  }
  for (int s = 0; s < stream_count(); ++s) new (&control(s)) StreamControl;
  new (base_) Head{kRegionMagic, shape_};
}

}  // namespace jige::comm
