// How a folder judges a pair of texts, a query and a document: a cross-encoder or reranker.
//
//   class in config.json                       the logit, of the last layer's rows h[0 … n-1]
//   BertForSequenceClassification, NewForSequenceClassification,
//   NomicBertForSequenceClassification         classifier(tanh(bert.pooler.dense(h[0])))
//   RobertaForSequenceClassification, MPNetForSequenceClassification,
//   XLMRobertaForSequenceClassification        classifier.out_proj(tanh(classifier.dense(h[0])))
//   DebertaV2ForSequenceClassification         classifier(f(pooler.dense(h[0]))), f by
//                                              "pooler_hidden_act" gelu, tanh or relu
//   DistilBertForSequenceClassification        classifier(relu(pre_classifier(h[0])))
//   EuroBertForSequenceClassification          classifier(gelu(dense(h))), h by
//                                              "classifier_pooling" h[0] or the mean
//   ModernBertForSequenceClassification        classifier(norm(gelu(head.dense(h)))), h by
//                                              "classifier_pooling" h[0] or the mean
//   Qwen3ForSequenceClassification             score(h[n-1])
//   Qwen3ForCausalLM (Qwen3-Reranker)          head row of "yes" · h[n-1] − that of "no" · h[n-1]
//
// The score is the logit's sigmoid (of the last, the probability of "yes" beside "no"), or the
// logit where the folder's activation is Identity, which these say, the first that is there:
// "activation_fn" of config_sentence_transformers.json, of "sentence_transformers" in config.json,
// and "sbert_ce_default_activation_function" there. Qwen3ForCausalLM has the sigmoid always.
// Pairs have token types where the model has several, unless "model_input_names" of
// tokenizer_config.json leaves out "token_type_ids".
// Threads: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "formats/embedding_config.h"
#include "text/tokenizer.h"

namespace jige::formats {

// How two texts become one: as the tokenizer frames a pair, or by the prompt of Qwen3-Reranker.
enum class PairJoin { kTokenizer, kQwen3 };

struct PairConfig {
  PairJoin join = PairJoin::kTokenizer;
  PoolingKind pooling = PoolingKind::kCls;
  VectorLayers layers;      // behind it; the last gives the logit alone
  bool is_sigmoid = true;   // what scores are of logits; else the same
  int64_t token_types = 1;  // that pairs have
  int64_t tokens_max = 0;   // of a pair with what is around it; 0: no file says it
};

// Whether a folder is of a class for pairs: one for sequence classification, and not one of an
// embedding model by its modules.json.
bool is_pair_folder(const std::string& folder);

// Reads config, head and lengths. Fails with kUnsupported on another class, several labels and
// another activation, and with kCorrupt or kNotFound on damage; each names file and field or
// tensor.
Result<PairConfig> load_pair_config(const std::string& folder, const text::Tokenizer& tokenizer);

// The score of a logit.
double pair_score(const PairConfig& config, float logit);

}  // namespace jige::formats
