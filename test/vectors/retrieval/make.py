"""Makes this folder: tiny models laid out as published ones, and what sentence-transformers and transformers answer, in float64.

    pip install sentence-transformers==6.2.0 transformers==5.24.0 && python3 test/vectors/retrieval/make.py

A case is a folder: the model's files, case.json with what is asked, and case.safetensors with the answers. test/conformance/retrieval.ts
says how each is read. Another version of PyTorch may draw other weights: commit all that a run writes.
"""

import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
sys.dont_write_bytecode = True

from cases import store
from cases.store import container

torch.set_default_dtype(torch.float64)
store.HERE = HERE
TEXTS = ["the cat sat on a mat.", "Paris is near", "", "a dog ran and ran and ran and ran and ran and ran and ran", "näive [SEP] zebra"]
WORDS = "the a cat dog sat ran on mat paris is near and naive query passage : . ? it this example animal place ##s".split()
PAIRS = [["is paris near ?", "paris is near ."], ["cat", "the dog ran and ran and ran and ran and ran and ran and ran and ran"], ["a dog", ""]]


def word_pieces(folder, length, lower=True):
    """A vocabulary of words and letters."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdeinoprtz", *(f"##{x}" for x in "abdeinortz")]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    return save_tokenizer(made, folder, length, names)


def byte_pairs(folder, length, space=False):
    """A vocabulary of bytes and a few pairs, whose places in a text have the space before a word."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("a", "t"), ("Ġ", "c"), ("Ġc", "at"), ("Ġ", "P"), ("i", "s")]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, *(a + b for a, b in merges)]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    if space:
        made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=True)
    names = {"unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>"}
    return save_tokenizer(made, folder, length, names)


def save_tokenizer(made, folder, length, names):
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=length, **names)
    made.save_pretrained(folder)
    return made


def save_model(folder, kind, tokenizer, **fields):
    """A model of this class, with weights that make every part count."""
    seed = zlib.crc32(folder.name.encode())
    names = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind.startswith("DistilBert"):
        names = {"dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2}
    cls = getattr(transformers, kind)
    if "id2label" in fields:
        fields["label2id"] = {label: i for i, label in fields["id2label"].items()}
    config = cls.config_class(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **{**names, **fields})
    model = cls(config)
    draw(model, seed)
    model.half().save_pretrained(folder)
    return config


def draw(module, seed):
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, each in sorted(module.state_dict(keep_vars=True).items()):
            if each.is_floating_point() and each.ndim > 0:
                own = torch.rand(each.shape, generator=random, dtype=torch.float64) * 2 - 1
                each.copy_(own * 2 * each.shape[-1] ** -0.5 if each.ndim > 1 else each + own * 0.25)
                each.copy_(each.half().double())


def write(path, value):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def modules(folder, *kinds):
    paths = ["" if i == 0 else f"{i}_{kind}" for i, kind in enumerate(kinds)]
    write(folder / "modules.json", [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths))
    ])
    return [folder / path for path in paths]


def dense(folder, inputs, outputs, activation, bias=True):
    write(folder / "config.json", {
        "in_features": inputs, "out_features": outputs, "bias": bias,
        "activation_function": f"torch.nn.modules.{activation}",
    })
    layer = torch.nn.Linear(inputs, outputs, bias=bias)
    draw(layer, zlib.crc32(str(outputs).encode()))
    weights = {f"linear.{name}": each.detach().half().numpy() for name, each in layer.state_dict().items()}
    (folder / "model.safetensors").write_bytes(container(weights))


def finish(folder, op, data, outputs, copies=()):
    outputs = {name: np.asarray(each) for name, each in outputs.items()}
    outputs = {name: each.astype(np.float64 if each.dtype.kind == "f" else np.int32) for name, each in outputs.items()}
    for file in folder.rglob("*.safetensors"):
        if file.name != "case.safetensors":
            stored = {name: each.numpy() for name, each in load_file(file).items()}
            file.write_bytes(container(stored))
    write(folder / "case.json", data)
    largest = max(float(np.abs(each).max()) for each in outputs.values() if each.dtype.kind == "f")
    store.case("retrieval", op, folder.name, {}, {}, outputs, tolerance=float(f"{1e-4 * largest:.1e}"), copies=copies, folder=folder.name)
    print(folder.name, {name: each.shape for name, each in outputs.items()})


def folder_of(name):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def sentence(name, model, prompts=()):
    outputs = {"embeddings": model.encode(TEXTS)}
    for prompt in prompts:
        outputs[f"embeddings_{prompt}"] = model.encode(TEXTS, prompt_name=prompt)
    if prompts:
        outputs |= {"encode_query": model.encode_query(TEXTS), "encode_document": model.encode_document(TEXTS)}
    return outputs


double = {"model_kwargs": {"dtype": torch.float64}}


def embedding_cases():
    folder = folder_of("bert-modules")
    config = save_model(folder, "BertModel", word_pieces(folder, 40), max_position_embeddings=40)
    paths = modules(folder, "Transformer", "Pooling", "Dense", "Normalize")
    write(paths[0] / "sentence_bert_config.json", {"max_seq_length": 12, "do_lower_case": False})
    write(paths[1] / "config.json", {
        "word_embedding_dimension": config.hidden_size, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": True, "pooling_mode_weightedmean_tokens": True, "include_prompt": False,
    })
    dense(paths[2], 4 * config.hidden_size, 10, "activation.Tanh")
    write(folder / "config_sentence_transformers.json", {
        "model_type": "SentenceTransformer", "prompts": {"query": "query : ", "passage": "passage : "}, "truncate_dim": 6,
        "default_prompt_name": "passage", "similarity_fn_name": "dot",
    })
    model = SentenceTransformer(str(folder), **double).double()
    finish(folder, "SentenceEmbedding", {"texts": TEXTS}, sentence(folder.name, model, ["query", "passage"]))

    folder = folder_of("bert-cased-lowered")
    save_model(folder, "BertModel", word_pieces(folder, 9, lower=False), max_position_embeddings=40)
    paths = modules(folder, "Transformer", "Pooling")
    write(folder / "sentence_bert_config.json", {"do_lower_case": True})
    write(paths[1] / "config.json", {"embedding_dimension": 16, "pooling_mode": ["mean_sqrt_len_tokens", "lasttoken"]})
    model = SentenceTransformer(str(folder), **double).double()
    finish(folder, "SentenceEmbedding", {"texts": TEXTS}, sentence(folder.name, model))

    folder = folder_of("static-mean")
    tokenizer = word_pieces(folder, 40)
    table = torch.nn.Embedding(len(tokenizer), 8)
    draw(table, 5)
    (folder / "model.safetensors").write_bytes(container({"embedding.weight": table.weight.detach().half().numpy()}))
    modules(folder, "StaticEmbedding", "Normalize")
    write(folder / "config_sentence_transformers.json", {"model_type": "SentenceTransformer"})
    model = SentenceTransformer(str(folder)).double()
    finish(folder, "SentenceEmbedding", {"texts": TEXTS}, sentence(folder.name, model))


def further_cases():
    """What the cases above do not have: texts cut at their beginning, added inputs, layers that read tokens in order, prompts of pairs."""
    folder = folder_of("bert-cut-left")
    tokenizer = word_pieces(folder, 9)
    tokenizer.truncation_side = "left"
    tokenizer.save_pretrained(folder)
    save_model(folder, "BertModel", tokenizer, max_position_embeddings=40)
    paths = modules(folder, "Transformer", "Pooling", "Dense")
    write(paths[1] / "config.json", {"word_embedding_dimension": 16, "pooling_mode_cls_token": False, "include_prompt": False})
    dense(paths[2], 16, 16, "activation.ReLU")
    write(paths[2] / "config.json", {**json.loads((paths[2] / "config.json").read_text()), "use_residual": True})
    write(folder / "config_sentence_transformers.json", {"prompts": {"query": "the a cat dog sat ran on mat paris is : "}})
    model = SentenceTransformer(str(folder), **double).double()
    finish(folder, "SentenceEmbedding", {"texts": TEXTS}, sentence(folder.name, model, ["query"]))

    folder = folder_of("lfm2-last")
    save_model(folder, "Lfm2Model", word_pieces(folder, 300), max_position_embeddings=512, layer_types=["conv", "full_attention"],
        num_key_value_heads=1, block_multiple_of=8)
    paths = modules(folder, "Transformer", "Pooling", "Normalize")
    write(paths[1] / "config.json", {"embedding_dimension": 16, "pooling_mode": "lasttoken"})
    model = SentenceTransformer(str(folder), **double).double()
    texts = [*TEXTS, "a dog ran and " * 70]
    finish(folder, "SentenceEmbedding", {"texts": texts}, {"embeddings": model.encode(texts)})

    folder = folder_of("rerank-llama")
    save_model(folder, "LlamaForSequenceClassification", word_pieces(folder, 24), max_position_embeddings=40, num_key_value_heads=1)
    config = json.loads((folder / "config.json").read_text())
    write(folder / "config.json", {**config, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "pad_token_id": 3})
    names = json.loads((folder / "tokenizer_config.json").read_text())
    write(folder / "tokenizer_config.json", {**names, "pad_token": "[SEP]"})
    draw_score(folder, 16, 1)
    prompts = {"prompts": {"query": "query : "}, "default_prompt_name": "query"}
    model = CrossEncoder(str(folder), activation_fn=torch.nn.Tanh(), **prompts, **double)
    model.save_pretrained(str(folder), create_model_card=False)
    for file in folder.rglob("model.safetensors"):
        file.write_bytes(container({name: each.half().numpy() for name, each in load_file(file).items()}))
    model = CrossEncoder(str(folder), **double)
    model.model.double()
    logits = model.predict(PAIRS, activation_fn=torch.nn.Identity())
    finish(folder, "CrossEncoder", {"pairs": PAIRS}, {"logits": logits, "scores": model.predict(PAIRS)})


def draw_score(folder, inputs, labels):
    """A head for so many labels."""
    tensors = {name: each.numpy() for name, each in load_file(folder / "model.safetensors").items()}
    head = torch.nn.Linear(inputs, labels, bias=False)
    draw(head, 7)
    tensors["score.weight"] = head.weight.detach().half().numpy()
    (folder / "model.safetensors").write_bytes(container(tensors))


def scoring_cases():
    folder = folder_of("rerank-roberta")
    save_model(folder, "RobertaForSequenceClassification", byte_pairs(folder, 24), max_position_embeddings=40, num_labels=1, type_vocab_size=1)
    model = CrossEncoder(str(folder), **double)
    model.model.double()
    logits = model.predict(PAIRS, activation_fn=torch.nn.Identity())
    documents = [document for _, document in PAIRS]
    order = [each["corpus_id"] for each in model.rank("is paris near ?", documents)]
    finish(folder, "CrossEncoder", {"pairs": PAIRS, "query": "is paris near ?", "documents": documents},
        {"logits": logits, "scores": model.predict(PAIRS), "rank": order}, copies=("rank",))

    folder = folder_of("classify-modernbert")
    labels = {0: "animal", 1: "place"}
    save_model(folder, "ModernBertForSequenceClassification", word_pieces(folder, 12), max_position_embeddings=40,
        id2label=labels, problem_type="multi_label_classification", classifier_pooling="mean", local_attention=6,
        cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
    logits = run(folder, "ModernBertForSequenceClassification", TEXTS)
    finish(folder, "SequenceClassification", {"texts": TEXTS, "id2label": labels},
        {"logits": logits, "scores": 1 / (1 + np.exp(-logits))})

    folder = folder_of("zeroshot-bert")
    labels = {0: "Entailment", 1: "contradiction"}
    save_model(folder, "BertForSequenceClassification", word_pieces(folder, 14), max_position_embeddings=40, id2label=labels)
    names = ["animal", "place"]
    model, tokenizer = opened(folder, "AutoModelForSequenceClassification")
    texts = [text for text in TEXTS if text]
    pipeline = transformers.pipeline("zero-shot-classification", model=model, tokenizer=tokenizer)
    def scores(many):
        found = [pipeline(text, names, multi_label=many) for text in texts]
        return np.array([[dict(zip(each["labels"], each["scores"]))[name] for name in names] for each in found])
    data = {"texts": texts, "labels": names, "hypothesis_template": "This example is {}.", "id2label": labels}
    finish(folder, "ZeroShot", data, {"scores": scores(False), "scores_multi": scores(True)})


def opened(folder, kind):
    model = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def run(folder, kind, texts):
    """The logits of texts, each alone."""
    model, tokenizer = opened(folder, kind)
    with torch.no_grad():
        return np.concatenate([model(**tokenizer(text, return_tensors="pt", truncation=True)).logits.numpy() for text in texts])


def token_cases():
    spaced = lambda folder, length: byte_pairs(folder, length, space=True)
    for name, make_tokenizer in [("ner-bert", word_pieces), ("ner-roberta", byte_pairs), ("ner-roberta-marks", spaced)]:
        kind = "BertForTokenClassification" if name == "ner-bert" else "RobertaForTokenClassification"
        folder = folder_of(name)
        labels = {0: "O", 1: "B-PLACE", 2: "I-PLACE", 3: "B-ANIMAL"}
        save_model(folder, kind, make_tokenizer(folder, 40), max_position_embeddings=60, id2label=labels, type_vocab_size=2 if name == "ner-bert" else 1)
        model, tokenizer = opened(folder, "AutoModelForTokenClassification")
        texts = ["The cat sat  on a mät in Paris.", "zebras ran"]
        if name == "ner-roberta-marks":
            texts = ["zebra e\u0301 \U0001f600 in Paris", "  the\ncat "]
        groups, outputs = {}, {}
        for strategy in ["simple", "first", "average", "max"]:
            pipeline = transformers.pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)
            found = [pipeline(text) for text in texts]
            groups[strategy] = [[{"end": e["end"], "entity": e["entity_group"], "start": e["start"], "word": e["word"]} for e in each] for each in found]
            outputs[f"scores_{strategy}"] = np.array([float(e["score"]) for each in found for e in each])
        with torch.no_grad():
            rows = [model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts]
        outputs["logits"] = np.concatenate(rows)
        finish(folder, "TokenClassification", {"texts": texts, "id2label": labels, "groups": groups, "lengths": [len(row) for row in rows]}, outputs)

    folder = folder_of("qa-distilbert")
    save_model(folder, "DistilBertForQuestionAnswering", word_pieces(folder, 40), max_position_embeddings=60)
    model, tokenizer = opened(folder, "AutoModelForQuestionAnswering")
    pairs = [["is it near ?", "the cat sat on a mat. Paris is near."], ["cat ?", "a dog ran"]]
    starts, ends, scores, spans = [], [], [], []
    for question, context in pairs:
        encoded = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
        offsets = encoded.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            out = model(**{key: value for key, value in encoded.items() if key != "token_type_ids"})
        start, end = out.start_logits[0].numpy(), out.end_logits[0].numpy()
        own = [i for i, which in enumerate(encoded.sequence_ids(0)) if which == 1]
        share = lambda logits: np.exp(logits[own]) / np.exp(logits[own]).sum()
        product = np.triu(np.outer(share(start), share(end))) - np.triu(np.ones((len(own), len(own))), 15)
        i, j = np.unravel_index(product.argmax(), product.shape)
        spans.append([offsets[own[i]][0], offsets[own[j]][1]])
        scores.append(product[i, j])
        starts.append(start)
        ends.append(end)
    finish(folder, "QuestionAnswering", {"pairs": pairs, "spans": spans, "max_answer_tokens": 15},
        {"start_logits": np.concatenate(starts), "end_logits": np.concatenate(ends), "scores": np.array(scores)})

    folder = folder_of("fill-distilbert")
    save_model(folder, "DistilBertForMaskedLM", word_pieces(folder, 40), max_position_embeddings=40)
    model, tokenizer = opened(folder, "AutoModelForMaskedLM")
    texts = ["the [MASK] sat on a mat.", "paris is [MASK]"]
    found = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=5)(texts)
    ids = np.array([[each["token"] for each in own] for own in found])
    data = {"texts": texts, "tokens": [tokenizer.convert_ids_to_tokens(row.tolist()) for row in ids]}
    finish(folder, "FillMask", data, {"ids": ids, "scores": np.array([[each["score"] for each in own] for own in found])}, copies=("ids",))

    folder = folder_of("splade-bert")
    save_model(folder, "BertForMaskedLM", word_pieces(folder, 12), max_position_embeddings=40)
    model = SparseEncoder(str(folder), **double).double()
    model.save_pretrained(str(folder), create_model_card=False)
    for file in folder.rglob("model.safetensors"):
        file.write_bytes(container({name: each.half().numpy() for name, each in load_file(file).items()}))
    finish(folder, "SparseEmbedding", {"texts": TEXTS}, {"embeddings": model.encode(TEXTS).to_dense().numpy()})

    folder = folder_of("colbert-bert")
    save_model(folder, "BertModel", word_pieces(folder, 24), max_position_embeddings=40)
    paths = modules(folder, "Transformer", "MultiVectorMask", "Dense", "Normalize")
    types = json.loads((folder / "modules.json").read_text())
    kinds = ["base.modules.transformer.Transformer", "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask", "base.modules.dense.Dense", "base.modules.normalize.Normalize"]
    write(folder / "modules.json", [{**each, "type": f"sentence_transformers.{kind}"} for each, kind in zip(types, kinds)])
    write(folder / "sentence_bert_config.json", {
        "transformer_task": "feature-extraction", "module_output_name": "token_embeddings", "query_length": 9, "document_length": 12,
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "query_expansion": {"strategy": "fixed", "attend": False, "token": None, "length": 9},
    })
    write(paths[1] / "config.json", {"skiplist_words": [".", "?"], "skiplist_tasks": ["document"], "keep_only_token_ids": None})
    dense(paths[2], 16, 6, "linear.Identity", bias=False)
    names = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
    write(paths[2] / "config.json", {**json.loads((paths[2] / "config.json").read_text()), **names})
    write(paths[3] / "config.json", names)
    write(folder / "config_sentence_transformers.json", {"model_type": "MultiVectorEncoder", "prompts": {"query": "query : ", "document": "passage : "}})
    model = MultiVectorEncoder(str(folder), **double).double()
    queries, documents = ["is paris near ?", "cat"], ["paris is near .", "the dog ran and ran and ran and ran and ran", "a ?"]
    own, others = model.encode_query(queries), model.encode_document(documents)
    own, others = [[np.asarray(row) for row in rows] for rows in (own, others)]
    scores = np.array([[(a @ b.T).max(1).sum() for b in others] for a in own])
    data = {"queries": queries, "documents": documents, "query_rows": [len(a) for a in own], "document_rows": [len(b) for b in others]}
    finish(folder, "LateInteraction", data, {"queries": np.concatenate(own), "documents": np.concatenate(others), "scores": scores})


embedding_cases()
further_cases()
scoring_cases()
token_cases()
lines = ",\n".join(json.dumps(entry, sort_keys=True, ensure_ascii=True) for entry in store.CASES)
(HERE / "index.json").write_text(f'{{"format":1,"cases":[\n{lines}\n]}}\n')
