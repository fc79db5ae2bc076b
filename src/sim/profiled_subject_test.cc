#include "sim/profiled_subject.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jige::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ProfiledSubject tiny_subject() {
  return {.machine = {"EPYC", "avx512", "cpu", 2, 1},
          .model = {"models/tiny", "bf16", "none", "bf16", 15'000'000, 6, 288, 32'000, 1024}};
}

TEST(ProfiledSubject, NamesAndContextsMayDiffer) {
  ProfiledSubject now = tiny_subject();
  now.model.name = "runs/tuned";
  now.model.context = 2048;
  EXPECT_TRUE(same_shape(tiny_subject().model, now.model));
  EXPECT_THAT(differences(tiny_subject(), now), IsEmpty());
}

TEST(ProfiledSubject, EveryNumberIsOfTheShape) {
  for (int64_t ProfiledModel::*const count : {&ProfiledModel::parameters, &ProfiledModel::layers,
                                              &ProfiledModel::width, &ProfiledModel::vocabulary}) {
    ProfiledModel other = tiny_subject().model;
    other.*count += 1;
    EXPECT_FALSE(same_shape(tiny_subject().model, other));
    EXPECT_FALSE(same_shape(other, tiny_subject().model));
  }
}

TEST(ProfiledSubject, WhatDiffersIsNamed) {
  ProfiledSubject now = tiny_subject();
  now.machine.kernels = "avx2";
  now.machine.threads = 8;
  now.model.weights = "q8";
  EXPECT_THAT(
      differences(tiny_subject(), now),
      ElementsAre("kernels: avx512, now avx2", "threads: 1, now 8", "weights: none, now q8"));
}

}  // namespace
}  // namespace jige::sim
