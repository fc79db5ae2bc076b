"""What record_text.py feeds to the libraries: a small corpus, hard texts, and components."""

import random

from tokenizers import Regex
from tokenizers import decoders as d
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

SENTENCES = [
    "The miller's daughter counted 128 sacks before the rain came.",
    "We don't know why they've left; it's what she'd call a mystery, and I'll say I'm not sure.",
    "A small boat drifts along the quiet river, and nobody is at the oars.",
    "If the lamp goes out, light another one and wait until morning.",
    "def area(width, height):\n    return width * height  # square metres\n",
    "for (int i = 0; i < 10; ++i) {\n\tsum += values[i];\n}\n",
    "Il était une fois un boulanger qui perdait ses clés à l'école du château.",
    "Der Bäcker fährt früh über die Brücke und grüßt den Nachbarn.",
    "El niño pequeño comió una manzana en el jardín mañana y tarde.",
    "Мельник считал мешки, пока дождь не закончился.",
    "猫は窓の外の雨を見ている。東京の朝は静かだ。",
    "小船在安静的河上漂着,没有人划桨。我们明天再来。",
    "작은 배가 조용한 강을 따라 흘러간다.",
    "القارب الصغير يطفو على النهر الهادئ",
    "The price rose from 12.50 to 1,024.99 in 2023 and 2024.",
    "red green blue yellow red green blue red green red",
]


def corpus():
    """A few thousand lines made from the sentences above, always the same."""
    generator = random.Random(1)
    words = " ".join(SENTENCES).split()
    lines = []
    for _ in range(60):
        lines.extend(SENTENCES)
    for _ in range(1500):
        lines.append(" ".join(generator.choice(words) for _ in range(generator.randrange(3, 12))))
    return lines


HARD_TEXTS = [
    "",
    " ",
    "  ",
    "a",
    "Hello, world!",
    " leading and trailing  ",
    "don't DON'T Don'T it's IT'S we'll WE'LL they've I'd i'M you're",
    "don\u2019t it\u2019s curly",
    "'s 't 're 've 'm 'll 'd 'S 'RE \u017fs '\u017f",
    "x = 1;  y  =  22;   z   =   333;    w    =    4444",
    "0 12 345 6789 01234 567890 3.14159 1,000,000 1e-5 0x1F",
    "\u0661\u0662\u0663 \u0967\u0968\u0969 \u2167 \u00bd \u00b2\u00b3 \u2460",
    "line\nline\r\nline\rline\n\n\nend\n",
    "\n",
    "\n\n",
    " \n \n ",
    "\t\ttabs\tand\t spaces \t mixed\t",
    "a" + " " * 40 + "b" + "\n" * 17 + "c" + "\t" * 9 + "d",
    "   \n   x",
    "trailing newlines and spaces \n \n  ",
    "\x00nul\x00 \x01\x02\x1b[0m \x7f\x80\x85\x9f",
    "non\u00a0breaking\u2003em\u3000ideographic\u2028line\u2029para\u200bzero\ufefffeff\u180emong",
    "\u732b\u306f\u7a93\u306e\u5916 \u6771\u4eac\u306e\u671d\u3001\u4f60\u597d\u4e16\u754c\uff01\uff11\uff12\uff13",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \u1112\u1161\u11ab",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u05e9\u05dc\u05d5\u05dd \u200f\u202bRTL\u202c",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\U0001f600\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1ec\U0001f1e7\U0001f1f0\U0001f1f7 \U0001f44d\U0001f3fd \u2764\ufe0f 1\ufe0f\u20e3",
    "e\u0301 \u00e9 o\u0302\u0323 \u1ed9 A\u030a \u212b \u0344 q\u0307\u0323 \ufb01 \u210c \u1e9b\u0323",
    "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m \u0130stanbul \u0131\u015f\u0131k \u00df\u1e9e \u03a3\u03c3\u03c2 \u01c5",
    "Z\u0351\u036b\u0343\u036a\u0302a\u0334\u0320\u0353l\u0358\u0347g\u0337o\u0317",
    "!!! ??? ... --- ### $$$ %%% ^^^ &&& *** ((( ))) [[[ ]]] {{{ }}} ||| ~~~ ``` @@@",
    "http://example.org/a/b?c=d&e=%20f#g user.name+tag@example.com C:\\temp\\new /usr/bin",
    "\u201cquotes\u201d \u00abguillemets\u00bb \u2018single\u2019 \u2014dash\u2014 \u2026",
    "CamelCaseWordsAndABBREVIATIONS snake_case_words kebab-case HTTPServer2Go",
    "\u2581 \u2581\u2581a \u0120 \u010a literal marks \u2581",
    "<0x41> <0xE4> <0xZZ> literal byte tokens",
    "<s> </s> <unk> <pad> [INST] [/INST] <|endoftext|> <|im_start|>",
    "\u4e00\u9fa5\u9fff\u3400\U00020000 \U0001d54f\U0001d7d8 \ue000\uf8ff\U000f0000 \uffff\ufffe\U0010ffff",
    "\u24b6\u24d0\U0001f130 \u2460\u2074\u2084\u215b \u3007 \u4e09",
    "_under_ __dunder__ \u203f\u2040 a_b",
    "the the the the " * 12,
    "ab" * 700,
    "\u5c0f\u8239" * 150,
    "x" * 1300,
    "red green\u00a0blue\u00a0\u00a0yellow",
    " \u00a0 \u2003x \u2003\u2003",
    "unmergeable unmergeable.unmergeable",
]

# Bytes that are not UTF-8; the libraries see them after errors="replace".
HARD_BYTES = [
    b"\x80",
    b"abc\xff\xfe def",
    b"\xc3\x28 \xa0\xa1 \xe2\x28\xa1 \xe2\x82 \xe2\x82",
    b"\xf0\x9f\x98",
    b"ok \xf0\x9f\x98\x80 \xf0\x28\x8c\xbc \xf0\x90\x28\xbc \xf8\xa1\xa1\xa1\xa1",
    b"\xed\xa0\x80 surrogate \xc0\xaf overlong \xf4\x90\x80\x80 too large",
    b"\xe4\xb8\xad\xe6\x96",
    b"\x00\xff\x00\xfe",
]

FAMILY_TEXTS = {
    "gpt2": ["a<|endoftext|>b", "<|endoftext|>", " <|endoftext|> <|endoftext|>", "<|endoftext"],
    "gpt2_prefix": ["a <mask> b", "<mask>", "x  <mask>y", "<s>a</s>"],
    "llama3": [
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
        "<|eot_id|><|eot_id|> <|eot_id|>\n<|eot_id |>",
        "say <|reserved_special_token_0|> twice",
    ],
    "qwen2": [
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nYo",
        "<think>a</think>b<tool_call>{}</tool_call>",
        "e\u0301<|im_end|>\u0301a",
    ],
    "tekken": ["<s>[INST] Hi [/INST] Yo</s>", "[INST][INST] [/INST]x"],
    "deepseek": [
        "<\uff5cbegin\u2581of\u2581sentence\uff5c><\uff5cUser\uff5c>\u732b12345\u3042\u30a2x",
        "\u00e9\u00e8 word \u00e9\u00e8 words x\u00e9\u00e8 word",
    ],
    "gpt_neox": [
        "<|endoftext|>e\u0301<|padding|>x<|endoftext|>",
        "if x:\n    y\n        z   a  b",
        "   \u0301 <|endoftext|>  x",
    ],
    "codegen": [
        "<|endoftext|>def f():\n\treturn 1\n\t\tx\n    y  z",
        "  \t\t \t  a<|endoftext",
        "       x   <|endoftext|>   y",
    ],
    "cohere": [
        "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi 1234<|END_OF_TURN_TOKEN|>",
        "12 a3b 45.6 \u0663\u00b2 x",
        "e\u0301 <PAD>\u212b",
    ],
    "llama2_legacy": [
        "<s>[INST] Hi [/INST] Yo </s>",
        "a<s>b <s> c</s>d",
        "<s> <s>\n</s>x <unk>y",
    ],
    "llama2_metaspace": [
        "<s>[INST] Hi [/INST] Yo </s>",
        "a<s>b <s> c</s>d",
        " <s>x",
    ],
    "mistral": ["<s>[INST] Hi [/INST] Yo</s>", "[TOOL_CALLS] [1]x", "a [INST]b"],
    "gemma": ["<start_of_turn>user\nHi<end_of_turn>\n\nx", "a\n\n\nb <h1>  c   d", "\u2581\u2581\u2581 x"],
    "t5": ["a <extra_id_0>  b<extra_id_1>c", "<extra_id_2>", "<pad>x</s> <unk>", "\u0391\u0301 Z\u0301q e\u0301\u0302"],
    "xlm_roberta": ["a  <mask> b", "<s>a</s>b <unk>", "x   y  \n", "\u00df\u0301 Z\u200d \r\n\r", "\x01\x01a  "],
    "albert": ["``a'' [MASK]b", "[CLS]x[SEP]", "\u0301a \x01b", "\u2026\u00c9COLE [MASK"],
    "unigram_bytes": ["<s>a</s> <unk>b", "xyz xyxyz yzyz zyx", "\u4f60\u597d\u4f60", "a<s>\u4f60</s>", "\u2581\u0002a"],
    "flags": [
        "a <L> b  <R>  c  <B>  d <W> e<W>f <W>",
        "<L><L> <L>  <R><R>  <R> x  <B><B>  y",
        "<norm> <Norm> <NORM> caf\u00e9 Caf\u00e9 CAFE\u0301s word words sword word. RAW raw xRAWx",
        "<a><b> <a> <b> <a><a><b><a",
        "   <B>   ",
        "\u00a0<L>\u2003 <R>\u3000x",
        "\u00e9word word\u00e9 _word_ word\u200d \u0301word (word)",
    ],
}


def family_texts(name):
    return FAMILY_TEXTS.get(name, [])


def hard_rows(extra):
    rows = [{"text": text} for text in HARD_TEXTS + extra]
    return rows + [{"hex": raw.hex()} for raw in HARD_BYTES]


def row_text(row):
    if "hex" in row:
        return bytes.fromhex(row["hex"]).decode("utf-8", errors="replace")
    return row["text"]


def component_texts():
    return [
        "",
        "a-b--c-",
        "-",
        "  Hello,  World! it's 2024 & 42\u00bd\u0663x ",
        "\tTab\nnew\r\nline\u00a0nb\u2028sep\u180e\u200b ",
        "\u00c9cole \u0130I\u0307 \u00df \ufb01 \u2460 e\u0301o\u0323\u0302 \u1100\u1161\u11a8 \uff21\uff22",
        "\u732b\u3068\u72ac\u3001\u3002 $x=_y_; \u00bfqu\u00e9? \u2581mark \u2581",
        "Z\u0351\u036b\u0343\u036a\u0302 \U0001f469\u200d\U0001f467 \u0915\u094d\u0937",
    ]


def normalizers():
    import record_text_unigram

    return [
        record_text_unigram.precompiled(),
        n.Nmt(),
        n.NFC(),
        n.NFD(),
        n.NFKC(),
        n.NFKD(),
        n.Lowercase(),
        n.StripAccents(),
        n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase()]),
        n.Strip(),
        n.Strip(left=True, right=False),
        n.Strip(left=False, right=True),
        n.Prepend("\u2581"),
        n.Replace(" ", "\u2581"),
        n.Replace("--", ""),
        n.Replace(Regex(r"\s+"), " "),
        n.Replace(Regex(r"(?i)h|W"), "<x>"),
        n.Replace(Regex(r"x*"), "|"),
        n.Sequence([n.Replace(Regex(r" {2,}"), " "), n.Strip(), n.Prepend(">")]),
        n.ByteLevel(),
        n.BertNormalizer(),
        n.BertNormalizer(lowercase=False),
        n.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False),
        n.BertNormalizer(lowercase=False, strip_accents=True),
    ]


def pre_tokenizers():
    splits = []
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            splits.append(p.Split("-", behavior, invert=invert))
            splits.append(p.Split(Regex(r"\s"), behavior, invert=invert))
    patterns = [
        r"\w+",
        r"\W+",
        r"[\w\d]+",
        r"\d",
        r"\s+(?!\S)|\S+",
        r"^\w|\w$",
        r"\p{Han}+|\p{Latin}+",
        r"\p{Letter}+|\p{^L}",
        r"(?m:a.)|(?<=l)o",
        r"\h+",
        r"(?i:\u00e9|world)",
        r"x*",
        r"[\s\S]{,3}",
        r"\x{732b}|\u3068",
        r"(?>a|b)++|.",
        # Classes inside classes, as in BLOOM's pattern, and intersections, as in Kimi's.
        " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
        r"[\p{Han}]+|[\p{L}\p{M}&&[^\p{Han}]]+|\s+|[^\s\p{L}]",
        r"[a-w&&[^c-g]z]+",
        r"[^a-w&&[^c-g]z]+",
        r"[a-z&&[^aeiou]&&[^l-r]x]+",
        r"[o[^a-z\s]]+",
        r"[^o[^a-z\s]]+",
        r"[[a-e][w-z]\d]+",
        r"(?i)[A-Z&&[^WH]]+",
        r"[[:punct:]&&[^,!]]",
    ]
    return splits + [p.Split(Regex(pattern), "isolated") for pattern in patterns] + [
        p.ByteLevel(add_prefix_space=False),
        p.ByteLevel(add_prefix_space=True),
        p.ByteLevel(add_prefix_space=True, use_regex=False),
        p.Metaspace(prepend_scheme="always"),
        p.Metaspace(prepend_scheme="first"),
        p.Metaspace(prepend_scheme="never"),
        p.Metaspace(prepend_scheme="always", split=False),
        p.Metaspace(replacement="_", prepend_scheme="first"),
        p.Digits(individual_digits=True),
        p.Digits(individual_digits=False),
        p.Whitespace(),
        p.WhitespaceSplit(),
        p.Punctuation(),
        p.Punctuation("removed"),
        p.Punctuation("merged_with_previous"),
        p.Punctuation("contiguous"),
        p.BertPreTokenizer(),
        p.CharDelimiterSplit("-"),
        p.Sequence([p.WhitespaceSplit(), p.Metaspace(prepend_scheme="first")]),
        p.Sequence([p.Split("-", "isolated"), p.Metaspace(prepend_scheme="first")]),
        p.Sequence([p.Digits(individual_digits=True), p.ByteLevel(add_prefix_space=False)]),
        p.Sequence([p.ByteLevel(add_prefix_space=False), p.Digits(individual_digits=True)]),
        p.Sequence([p.Punctuation(), p.Whitespace()]),
        # What stands behind a mark that was put in front begins where the input does.
        p.Sequence([p.Metaspace(prepend_scheme="first"),
                    p.Metaspace(replacement="_", prepend_scheme="first")]),
        p.Sequence([p.Metaspace(prepend_scheme="first", split=False), p.Split("\u2581", "isolated"),
                    p.Metaspace(replacement="_", prepend_scheme="first", split=False)]),
        p.Sequence([p.ByteLevel(add_prefix_space=True), p.BertPreTokenizer(),
                    p.Metaspace(prepend_scheme="first")]),
        p.Sequence([p.ByteLevel(add_prefix_space=False, use_regex=False), p.BertPreTokenizer(),
                    p.Metaspace(prepend_scheme="first")]),
    ]


def decoders():
    marks = [
        [],
        ["\u2581Hello", "\u2581world", "!"],
        ["\u2581\u2581two", "\u2581\u2581", "x"],
        ["a", "\u2581b\u2581c"],
        ["\u2581"],
        [" a", "  b ", " "],
    ]
    fallback = [
        ["<0xE7>", "<0x8C>", "<0xAB>", "x"],
        ["\u2581", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0x41>", "<0x>", "<0xGG>"],
        ["<0x41>", "\u2581", "<0x0A>"],
    ]
    levels = [
        [],
        ["\u0120Hello", "\u0120w", "orld"],
        ["\u00e7", "\u012e", "\u00ab", "x", "\u010a\u010a"],
        ["<|special|>", "with space", "\u732b", "\u00f0", "a"],
    ]
    pieces = [
        [],
        ["##be", "##gin", "##s", "he", "##re", ".", "do", "not", "@x", "#", "##", "?"],
        ["it", "'", "s", "do", "n't", "' '", "you've", " 've", "!", ",", "x .", "i", "'m", "' "],
    ]
    replace = d.Replace("\u2581", " ")
    return [
        (d.ByteLevel(), levels),
        (d.Metaspace(), marks),
        (d.Metaspace(prepend_scheme="never"), marks),
        (d.Metaspace(prepend_scheme="first"), marks),
        (d.ByteFallback(), marks + fallback),
        (d.Fuse(), marks),
        (d.WordPiece(), pieces),
        (d.WordPiece(prefix="@", cleanup=False), pieces),
        (replace, marks),
        (d.Replace(Regex(r"\s+"), "_"), marks),
        (d.Strip(" ", 1, 0), marks),
        (d.Strip(" ", 0, 1), [["a ", " b", "c  "]]),
        (d.Strip("b", 2, 2), [["abba"], ["bba", "abb", "cb"]]),
        (d.Sequence([replace, d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)]), marks + fallback),
        (d.Sequence([replace, d.ByteFallback(), d.Fuse()]), marks + fallback),
        (d.Sequence([d.ByteLevel(), d.Replace("o", "0")]), levels),
        (d.Sequence([d.Fuse(), d.Replace("\u2581b", "-"), d.Strip("-", 1, 1)]), marks[3:4]),
    ]
