#include "cli/chat_defaults.h"

namespace jige::cli {

std::vector<std::string> default_special_tokens() {
  return {kBosToken, kEosToken, "<|system|>", "<|user|>", "<|assistant|>"};
}

std::string default_chat_template() {
  return "{{ bos_token }}"
         "{%- for message in messages %}"
         "{%- if message['role'] == 'assistant' %}"
         "{{- '<|assistant|>' }}"
         "{%- generation %}{{- message['content'] + eos_token }}{%- endgeneration %}"
         "{%- elif message['role'] == 'system' %}"
         "{{- '<|system|>' + message['content'] }}"
         "{%- elif message['role'] == 'user' %}"
         "{{- '<|user|>' + message['content'] }}"
         "{%- else %}"
         "{{- raise_exception('roles are system, user and assistant, not ' + message['role']) }}"
         "{%- endif %}"
         "{%- endfor %}"
         "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}";
}

}  // namespace jige::cli
