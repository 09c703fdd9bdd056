"""Families: layers of similar classes, which findings name together."""

from __future__ import annotations

BEGINNINGS = {
    "Conv": "convolution", "Linear": "linear layer", "Bilinear": "linear layer", "MultiheadAttention": "attention",
    "EmbeddingBag": "embedding bag", "Embedding": "embedding", "LSTM": "recurrent layer", "GRU": "recurrent layer",
    "RNN": "recurrent layer", "Dropout": "dropout", "Softmax": "softmax",
}  # fmt: skip
"""By the beginnings of PyTorch's class names."""
ENDINGS = {"Loss": "loss", "Pool1d": "pooling", "Pool2d": "pooling", "Pool3d": "pooling"}
MIDDLES = {"Norm": "normalisation"}
ACTIVATIONS = frozenset(
    {"ReLU", "ReLU6", "LeakyReLU", "PReLU", "RReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Sigmoid",
     "LogSigmoid", "Tanh", "Hardtanh", "Hardswish", "Hardsigmoid", "Softplus", "Softsign", "GLU", "Threshold"}
)  # fmt: skip


def family_of(name: str) -> str:
    """The family of a class: `Conv2d` is a `convolution`; an unknown class is a family of its own."""
    if name in ACTIVATIONS:
        return "activation"
    for beginning, family in BEGINNINGS.items():
        if name.startswith(beginning):
            return family
    for ending, family in ENDINGS.items():
        if name.endswith(ending):
            return family
    return next((family for middle, family in MIDDLES.items() if middle in name), name)


FAMILIES = frozenset({"activation", *BEGINNINGS.values(), *ENDINGS.values(), *MIDDLES.values()})
_CLASSES = """
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d
AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss
BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU CTCLoss ChannelShuffle CircularPad1d CircularPad2d
CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss CrossMapLRN2d Dropout Dropout1d Dropout2d
Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold FractionalMaxPool2d FractionalMaxPool3d
GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss
HuberLoss Identity InstanceNorm1d InstanceNorm2d InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM
LSTMCell LayerNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d
LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d
LazyInstanceNorm3d LazyLinear LeakyReLU Linear LinearCrossEntropyLoss LocalResponseNorm LogSigmoid LogSoftmax
MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish
MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss NLLLoss2d PReLU
PairwiseDistance PixelShuffle PixelUnshuffle PoissonNLLLoss RMSNorm RNN RNNBase RNNCell RNNCellBase RReLU ReLU
ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d SELU
SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus Softshrink Softsign SyncBatchNorm
Tanh Tanhshrink Threshold Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder
TransformerEncoderLayer TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold Upsample
UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
"""
BUILT_IN = frozenset(_CLASSES.split())
"""Classes of `torch.nn` (2.13) that compute: what happens inside of them no line of a program can change."""
