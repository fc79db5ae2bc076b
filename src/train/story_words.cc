#include "train/story_words.h"

namespace jige::train {
namespace {

using std::string_view;
using Pair = std::pair<string_view, string_view>;

constexpr string_view kNameList[] = {"Mia",  "Tom", "Ben",  "Anna", "Leo",  "Nora", "Sam",
                                     "Lily", "Max", "Ruby", "Finn", "Ida",  "Hugo", "Eva",
                                     "Noah", "Zoe", "Paul", "Ella", "Otto", "Lena"};
constexpr string_view kAnimalList[] = {"fox", "owl",  "bear",  "rabbit", "mouse",    "cat",
                                       "dog", "duck", "horse", "frog",   "hedgehog", "squirrel"};
constexpr string_view kPlaceList[] = {"forest", "garden", "meadow", "village", "mountain",
                                      "lake",   "river",  "farm",   "beach",   "park"};
constexpr string_view kThingList[] = {"ball", "kite", "lamp",   "book", "hat",  "cup",    "bell",
                                      "boat", "key",  "basket", "coat", "drum", "ribbon", "stone"};
constexpr string_view kColourList[] = {"red",   "blue",  "green", "yellow", "white",
                                       "black", "brown", "pink",  "golden", "silver"};
constexpr string_view kMoodList[] = {"happy", "curious", "brave", "tired", "lonely", "clever"};
constexpr string_view kWeatherList[] = {"sunny", "rainy", "windy", "snowy", "foggy", "warm"};

constexpr string_view kRequestList[] = {
    "Tell me a story about {an_animal}.",
    "Please tell me a story about {an_animal} called {name}.",
    "I would like a story about {an_animal} and {a_friend}.",
    "Can you tell a story about {a_friend} and {an_animal}?",
    "Write a short story about {an_animal} near the {place}.",
};

constexpr string_view kOpening[] = {
    "Once upon a time there was {an_animal} called {name}.",
    "Long ago {an_animal} named {name} lived near the {place}.",
    "There once was a {mood} {animal}, and its name was {name}.",
};
constexpr string_view kSetting[] = {
    "On a {weather} day {name} went to the {place}.",
    "One {weather} morning {name} walked to the {place}.",
    "It was a {weather} day, and {name} felt {mood}.",
};
constexpr string_view kFinding[] = {
    "There {name} found a {colour} {thing}.",
    "Under a tree lay a {colour} {thing}.",
    "Suddenly {name} saw a {colour} {thing} in the grass.",
};
constexpr string_view kMeeting[] = {
    "Then {a_friend} came along and asked, \"Is that my {thing}?\"",
    "{name} met {a_friend} who was looking for a {thing}.",
    "Soon {a_friend} came by and began to cry, because the {thing} was lost.",
};
constexpr string_view kTurning[] = {
    "{name} gave the {colour} {thing} to the {friend}.",
    "\"Here it is,\" said {name}, and gave the {thing} back.",
    "The {animal} smiled and said, \"Take your {thing}, dear {friend}.\"",
};
constexpr string_view kEnding[] = {
    "From that day on the {animal} and the {friend} were best friends.",
    "The {friend} was so glad that they danced until the evening.",
    "They went home together, and everyone was happy.",
};

constexpr Words kStoryPartList[] = {kOpening, kSetting, kFinding, kMeeting, kTurning, kEnding};

constexpr string_view kSumWayList[] = {
    "What is {a} plus {b}?",
    "How much is {a} and {b}?",
    "Please add {a} and {b}.",
};

constexpr string_view kCapitalWays[] = {
    "What is the capital of {key}?",
    "Which city is the capital of {key}?",
    "Name the capital of {key}.",
    "Tell me the capital city of {key}.",
};
constexpr Pair kCapitals[] = {
    {"France", "Paris"},   {"Germany", "Berlin"},  {"Italy", "Rome"},       {"Spain", "Madrid"},
    {"Korea", "Seoul"},    {"Japan", "Tokyo"},     {"China", "Beijing"},    {"Egypt", "Cairo"},
    {"Greece", "Athens"},  {"Norway", "Oslo"},     {"Sweden", "Stockholm"}, {"Poland", "Warsaw"},
    {"Austria", "Vienna"}, {"Portugal", "Lisbon"}, {"Ireland", "Dublin"},   {"Peru", "Lima"},
    {"Cuba", "Havana"},    {"Kenya", "Nairobi"},   {"Canada", "Ottawa"},    {"Finland", "Helsinki"},
};
constexpr string_view kColourWays[] = {
    "What colour is {key}?",
    "Which colour does {key} have?",
    "Tell me the colour of {key}.",
    "Do you know what colour {key} is?",
};
constexpr Pair kColourFacts[] = {
    {"grass", "green"},     {"snow", "white"},     {"blood", "red"},
    {"coal", "black"},      {"a lemon", "yellow"}, {"the clear sky", "blue"},
    {"chocolate", "brown"}, {"a tomato", "red"},   {"a frog", "green"},
    {"milk", "white"},      {"a raven", "black"},  {"a flamingo", "pink"},
};
constexpr string_view kOppositeWays[] = {
    "What is the opposite of {key}?",
    "Which word is the opposite of {key}?",
    "Give me the opposite of {key}.",
    "What word means the contrary of {key}?",
};
constexpr Pair kOpposites[] = {
    {"hot", "cold"},    {"big", "small"},  {"old", "young"},  {"fast", "slow"},
    {"happy", "sad"},   {"day", "night"},  {"high", "low"},   {"hard", "soft"},
    {"open", "closed"}, {"full", "empty"}, {"left", "right"}, {"early", "late"},
    {"light", "dark"},  {"loud", "quiet"}, {"dry", "wet"},    {"rich", "poor"},
};
constexpr string_view kSoundWays[] = {
    "What sound does a {key} make?",
    "What does a {key} say?",
    "Which sound do you hear from a {key}?",
    "How does a {key} sound?",
};
constexpr Pair kSounds[] = {
    {"dog", "woof"},  {"cat", "meow"}, {"cow", "moo"},   {"duck", "quack"},
    {"sheep", "baa"}, {"pig", "oink"}, {"lion", "roar"}, {"frog", "ribbit"},
};
constexpr string_view kNextWays[] = {
    "What comes after {key}?",
    "Which one follows {key}?",
    "Tell me what comes next after {key}.",
    "What is next when {key} is over?",
};
constexpr Pair kNext[] = {
    {"Monday", "Tuesday"},    {"Tuesday", "Wednesday"}, {"Wednesday", "Thursday"},
    {"Thursday", "Friday"},   {"Friday", "Saturday"},   {"Saturday", "Sunday"},
    {"Sunday", "Monday"},     {"January", "February"},  {"February", "March"},
    {"March", "April"},       {"April", "May"},         {"May", "June"},
    {"June", "July"},         {"July", "August"},       {"August", "September"},
    {"September", "October"}, {"October", "November"},  {"November", "December"},
};

constexpr FactFamily kFamilyList[] = {
    {kCapitalWays, "the capital of {key} is {value}.", kCapitals},
    {kColourWays, "{key} is {value}.", kColourFacts},
    {kOppositeWays, "the opposite of {key} is {value}.", kOpposites},
    {kSoundWays, "a {key} says {value}.", kSounds},
    {kNextWays, "after {key} comes {value}.", kNext},
};

}  // namespace

const Words kNames = kNameList;
const Words kAnimals = kAnimalList;
const Words kPlaces = kPlaceList;
const Words kThings = kThingList;
const Words kColours = kColourList;
const Words kMoods = kMoodList;
const Words kWeathers = kWeatherList;
const Words kStoryRequests = kRequestList;
const Words kSumWays = kSumWayList;
const std::span<const Words> kStoryParts = kStoryPartList;
const std::span<const FactFamily> kFactFamilies = kFamilyList;

}  // namespace jige::train
