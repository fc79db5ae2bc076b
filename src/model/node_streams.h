// NodeStreams: the streams on which the parameters of a model are written and read, by node of its
// graph: one for all, or of several GPUs, each with some of the nodes in its memory, one for each.
//
// Threads: as the streams.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/device.h"

namespace jige::model {

class NodeStreams {
 public:
  // One for all; implicit, as this is what most models have. It must outlive this.
  NodeStreams(Stream& all) : all_(&all) {}
  // One for each node, some of them the same.
  explicit NodeStreams(std::vector<Stream*> of_nodes) : of_nodes_(std::move(of_nodes)) {}

  Stream& operator[](size_t node) const { return all_ ? *all_ : *of_nodes_[node]; }
  void synchronize() const {
    if (all_) return all_->synchronize();
    for (Stream* const stream : of_nodes_) stream->synchronize();
  }

 private:
  Stream* all_ = nullptr;
  std::vector<Stream*> of_nodes_;
};

// Such streams with those who have them: one on every device, for the nodes that it holds.
class OwnNodeStreams {
 public:
  // The devices, by node, must outlive it. Fails as Device::make_stream.
  static Result<OwnNodeStreams> make(std::span<Device* const> of_nodes) {
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<Stream*> by_node;
    for (Device* const device : of_nodes) {
      Stream* found = nullptr;
      for (const auto& stream : streams) {
        if (&stream->device() == device) found = stream.get();
      }
      if (!found) {
        JIGE_TRY(auto made, device->make_stream());
        found = made.get();
        streams.push_back(std::move(made));
      }
      by_node.push_back(found);
    }
    return OwnNodeStreams(std::move(streams), std::move(by_node));
  }

  const NodeStreams& get() const { return streams_; }

 private:
  OwnNodeStreams(std::vector<std::unique_ptr<Stream>> own, std::vector<Stream*> of_nodes)
      : own_(std::move(own)), streams_(std::move(of_nodes)) {}

  std::vector<std::unique_ptr<Stream>> own_;
  NodeStreams streams_;
};

}  // namespace jige::model
