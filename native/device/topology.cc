#include <array>
#include <cstring>

#include "device/device.h"

namespace warpjoin {
namespace {

// The capability query can lie, so a pattern makes the trip and is read back.
bool copy_arrives(Device& from, Device& to) {
  std::array<unsigned char, 4096> sent, got{};
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<unsigned char>(i * 131 + 17);
  Buffer source = from.memory().allocate(sent.size());
  Buffer target = to.memory().allocate(got.size());
  const auto stream = from.create_stream(), back = to.create_stream();
  to.fill(target.data(), 0xEE, got.size(), *back);
  back->synchronize();
  from.copy(source.data(), sent.data(), sent.size(), *stream);
  from.copy_to_peer(target.data(), to, source.data(), sent.size(), *stream);
  stream->synchronize();
  to.copy(got.data(), target.data(), got.size(), *back);
  back->synchronize();
  return sent == got;
}

}  // namespace

Topology Topology::probe(const std::vector<Device*>& devices) {
  Topology topology;
  topology.devices_ = devices.size();
  topology.links_.resize(devices.size() * devices.size(), PeerLink{true});
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = 0; j < devices.size(); ++j) {
      if (i == j || devices[i]->info().kind == DeviceKind::host) continue;
      topology.links_[i * devices.size() + j].direct =
          devices[i]->addresses_peer(*devices[j]) && copy_arrives(*devices[i], *devices[j]);
    }
  }
  return topology;
}

}  // namespace warpjoin
