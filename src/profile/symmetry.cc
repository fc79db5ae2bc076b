#include "profile/symmetry.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

namespace jige::profile {

using topology::Component;
using topology::Hop;
using topology::Link;
using topology::Topology;
using topology::Transfer;

namespace {

constexpr size_t kComponentsMax = 200;
constexpr int64_t kStepsMax = 2'000'000;

std::string component_signature(const Component& c) {
  return fmt::format("{} {} {} {} {} {}", static_cast<int>(c.kind), c.gb_per_s, c.pull_cost,
                     c.copy_engine_gb_per_s, c.penalty.flows, c.penalty.factor);
}

// Searches for permutations that keep components and links, one component after the other.
class AutomorphismSearch {
 public:
  AutomorphismSearch(const Topology& t, size_t count_max)
      : t_(t), count_max_(count_max), n_(t.components().size()) {
    sign_pairs();
    choose_order();
  }

  Symmetry run() {
    Permutation permutation(n_, -1);
    std::vector<bool> taken(n_, false);
    extend(0, permutation, taken);
    std::ranges::sort(found_);
    return {std::move(found_), complete_};
  }

 private:
  void sign_pairs() {
    std::map<std::string, int32_t> ids{{"", 0}};
    const auto id_of = [&](const std::string& text) {
      return ids.emplace(text, static_cast<int32_t>(ids.size())).first->second;
    };
    std::vector<std::vector<std::string>> between(n_ * n_);
    for (const Link& link : t_.links()) {
      const auto a = static_cast<size_t>(link.from), b = static_cast<size_t>(link.to);
      const auto text = [&](double there, double back) {
        return fmt::format("{} {} {}", static_cast<int>(link.kind), there, back);
      };
      between[a * n_ + b].push_back(text(link.gb_per_s, link.back_gb_per_s));
      between[b * n_ + a].push_back(text(link.back_gb_per_s, link.gb_per_s));
    }
    for (auto& texts : between) {
      std::ranges::sort(texts);
      pair_.push_back(id_of(fmt::format("{}", fmt::join(texts, ","))));
    }
    for (const Component& c : t_.components()) own_.push_back(id_of(component_signature(c)));
  }

  // Neighbours early, so that a wrong choice shows soon.
  void choose_order() {
    std::vector<bool> seen(n_, false);
    for (size_t start = 0; start < n_; ++start) {
      if (seen[start]) continue;
      seen[start] = true;
      std::vector<size_t> queue{start};
      for (size_t head = 0; head < queue.size(); ++head) {
        order_.push_back(queue[head]);
        for (size_t next = 0; next < n_; ++next) {
          if (seen[next] || pair_[queue[head] * n_ + next] == 0) continue;
          seen[next] = true;
          queue.push_back(next);
        }
      }
    }
  }

  void extend(size_t depth, Permutation& permutation, std::vector<bool>& taken) {
    if (found_.size() >= count_max_ || ++steps_ > kStepsMax) {
      complete_ = false;
      return;
    }
    if (depth == n_) {
      if (keeps_peers(permutation) && keeps_routes(permutation)) found_.push_back(permutation);
      return;
    }
    const size_t at = order_[depth];
    for (size_t to = 0; to < n_; ++to) {
      if (taken[to] || own_[to] != own_[at] || !fits(depth, at, to, permutation)) continue;
      permutation[at] = static_cast<int32_t>(to);
      taken[to] = true;
      extend(depth + 1, permutation, taken);
      permutation[at] = -1;
      taken[to] = false;
    }
  }

  bool fits(size_t depth, size_t at, size_t to, const Permutation& permutation) const {
    for (size_t d = 0; d < depth; ++d) {
      const size_t other = order_[d];
      const auto other_to = static_cast<size_t>(permutation[other]);
      if (pair_[at * n_ + other] != pair_[to * n_ + other_to]) return false;
    }
    return true;
  }

  bool keeps_peers(const Permutation& permutation) const {
    const topology::Description& d = t_.description();
    return std::ranges::all_of(d.no_peer, [&](const topology::PeerRefusal& refusal) {
      return d.refuses_peer(permutation[static_cast<size_t>(refusal.from)],
                            permutation[static_cast<size_t>(refusal.to)]);
    });
  }

  // Every route's image must be the route between the images, with one image for every link.
  bool keeps_routes(const Permutation& permutation) const {
    std::vector<int32_t> link_image(t_.links().size(), -1), link_origin(t_.links().size(), -1);
    for (size_t a = 0; a < n_; ++a) {
      if (!is_endpoint(t_.components()[a].kind)) continue;
      for (size_t b = 0; b < n_; ++b) {
        if (a == b || !is_endpoint(t_.components()[b].kind)) continue;
        const auto here = t_.route(static_cast<int32_t>(a), static_cast<int32_t>(b));
        const auto there = t_.route(permutation[a], permutation[b]);
        if (here.size() != there.size()) return false;
        for (size_t i = 0; i < here.size(); ++i) {
          if (!same_hop(here[i], there[i], permutation)) return false;
          const auto from = static_cast<size_t>(here[i].link);
          const auto to = static_cast<size_t>(there[i].link);
          if (link_image[from] < 0 && link_origin[to] < 0) {
            link_image[from] = there[i].link;
            link_origin[to] = here[i].link;
          }
          if (link_image[from] != there[i].link) return false;
        }
      }
    }
    return true;
  }

  bool same_hop(Hop here, Hop there, const Permutation& permutation) const {
    const Link& a = t_.links()[static_cast<size_t>(here.link)];
    const Link& b = t_.links()[static_cast<size_t>(there.link)];
    const auto rates = [](const Link& link, bool backward) {
      return backward ? std::pair(link.back_gb_per_s, link.gb_per_s)
                      : std::pair(link.gb_per_s, link.back_gb_per_s);
    };
    const int32_t end = here.backward ? a.from : a.to;
    return rates(a, here.backward) == rates(b, there.backward) &&
           permutation[static_cast<size_t>(end)] == (there.backward ? b.from : b.to);
  }

  const Topology& t_;
  size_t count_max_;
  size_t n_;
  std::vector<int32_t> pair_, own_;
  std::vector<size_t> order_;
  std::vector<Permutation> found_;
  int64_t steps_ = 0;
  bool complete_ = true;
};

// Field by field where it is to stand: one that is copied there whole, just made, is waited for.
void write_image(const Permutation& permutation, const Transfer& transfer, Transfer& to) {
  const auto moved = [&](int32_t c) { return c < 0 ? c : permutation[static_cast<size_t>(c)]; };
  to.kind = transfer.kind;
  to.src = moved(transfer.src);
  to.dst = moved(transfer.dst);
  to.via = moved(transfer.via);
  to.engine = transfer.engine;
}

}  // namespace

Transfer image(const Permutation& permutation, const Transfer& transfer) {
  Transfer to;
  write_image(permutation, transfer, to);
  return to;
}

std::vector<Transfer> Symmetry::canonical(std::span<const Transfer> set) const {
  std::vector<Transfer> least, mapped(set.size());
  for (const Permutation& permutation : permutations) {
    for (size_t i = 0; i < set.size(); ++i) write_image(permutation, set[i], mapped[i]);
    // Whose least transfer is not the least is not, without being sorted.
    if (!least.empty() && least.front() < *std::ranges::min_element(mapped)) continue;
    std::ranges::sort(mapped);
    if (least.empty() || mapped < least) std::swap(least, mapped);
    mapped.resize(set.size());
  }
  return least;
}

bool Symmetry::contains(const Permutation& permutation) const {
  return std::ranges::binary_search(permutations, permutation);
}

void Symmetry::extend(const Permutation& permutation, size_t count_max) {
  generators.push_back(permutation);
  // In a finite group, products with generators alone reach everything.
  std::set<Permutation> group{permutations.front()};
  std::vector<Permutation> queue{permutations.front()};
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const Permutation& generator : generators) {
      Permutation product(permutation.size());
      for (size_t c = 0; c < product.size(); ++c) {
        product[c] = generator[static_cast<size_t>(queue[head][c])];
      }
      if (group.contains(product)) continue;
      if (group.size() >= count_max) {
        complete = false;
        break;
      }
      group.insert(product);
      queue.push_back(std::move(product));
    }
  }
  permutations.assign(group.begin(), group.end());
}

Symmetry no_symmetry(const Topology& topology) {
  Permutation identity(topology.components().size());
  std::iota(identity.begin(), identity.end(), 0);
  return {{identity}, true};
}

Symmetry find_symmetry(const Topology& topology, size_t count_max) {
  if (topology.components().size() > kComponentsMax) return no_symmetry(topology);
  Symmetry found = AutomorphismSearch(topology, std::max<size_t>(count_max, 1)).run();
  const Permutation identity = no_symmetry(topology).permutations.front();
  // A search that was cut short may have missed it.
  if (found.permutations.empty() || found.permutations.front() != identity) {
    std::erase(found.permutations, identity);
    found.permutations.insert(found.permutations.begin(), identity);
  }
  return found;
}

}  // namespace jige::profile
