"""Small Flax models that tasks train, and pretrained encoders of texts and images.

Define and initialise with a module, then work on its parameters:

    model = MLP(64, 32, 10, rngs=nnx.Rngs(jax.random.key(0)))
    graphdef, params = nnx.split(model, nnx.Param)
    params = fit(graphdef, params, x, y, key=jax.random.key(1))
    accuracy(graphdef, params, x_test, y_test)

Or load an encoder, with a fresh head for two classes, and fine-tune it:

    target = load_target(prepare_model("minilm"), n_classes=2, rngs=nnx.Rngs(0))
    tokens = tokenize(texts, target.tokenizer, length=64)
    tuned = finetune(target.graphdef, target.params, tokens, y, key=key, epochs=3)
    target = dataclasses.replace(target, params=tuned.params)
    target.logits(tokens)
"""

from jaxsel._files.folders import cache_folder as cache_folder

from ._catalog import (
    available_models as available_models,
    prepare_model as prepare_model,
)
from ._cnn import CNN as CNN
from ._encoder import (
    Classifier as Classifier,
    Encoder as Encoder,
)
from ._features import text_features as text_features
from ._federated import (
    FederatedRun as FederatedRun,
    fed_avg as fed_avg,
)
from ._finetune import (
    FineTuned as FineTuned,
    finetune as finetune,
    minimise as minimise,
)
from ._fit import (
    Params as Params,
    accuracy as accuracy,
    fit as fit,
    logits as logits,
    predict as predict,
    train as train,
)
from ._hf import load_target as load_target
from ._image_features import image_features as image_features
from ._layer import (
    EncoderConfig as EncoderConfig,
    EncoderLayer as EncoderLayer,
    attention_scores as attention_scores,
    norm_input as norm_input,
)
from ._lora import add_lora as add_lora, merge_lora as merge_lora
from ._mlp import MLP as MLP
from ._target import Target as Target
from ._tokens import Tokens as Tokens, tokenize as tokenize
