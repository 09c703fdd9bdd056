"""Trains small networks of many kinds for ten steps each, and prints a hash of each one's weights, to the last bit.

Argument: which of the networks, as `part/parts`; or a number of steps, and networks by name.
"""

import hashlib
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

STEPS = 10
ARCHITECTURES = {}
KEPT = []
"""So that no network lies where another lay."""


def architecture(optimizer, **options):
    """Register a function that makes a model and a function from a step's number to its loss."""

    def register(make):
        ARCHITECTURES[make.__name__] = (make, optimizer, options)
        return make

    return register


def mean_square(model, *shape):
    """The usual loss on random data, from an input's shape."""
    return lambda step: functional.mse_loss(out := model(torch.randn(*shape)), torch.randn_like(out))


def labels(model, classes, *shape):
    return lambda step: functional.cross_entropy(model(torch.randn(*shape)), torch.randint(classes, (shape[0],)))


# ---- activations ----------------------------------------------------------------------------------------------------


@architecture(torch.optim.SGD, lr=0.05)
def linear_silu_linear():
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4))
    return model, mean_square(model, 16, 8)


@architecture(torch.optim.SGD, lr=0.05, momentum=0.9)
def linear_mish_linear():
    model = nn.Sequential(nn.Linear(8, 16), nn.Mish(), nn.Linear(16, 4))
    return model, mean_square(model, 16, 8)


@architecture(torch.optim.Adam, lr=0.01)
def every_smooth_activation():
    kinds = [nn.GELU(), nn.GELU("tanh"), nn.ELU(), nn.CELU(0.7), nn.SELU(), nn.Softplus(2.0), nn.Tanh(), nn.Sigmoid(),
             nn.LogSigmoid(), nn.Softsign(), nn.Tanhshrink(), nn.SiLU(), nn.Mish()]  # fmt: skip
    model = nn.Sequential(*(layer for kind in kinds for layer in (nn.Linear(12, 12), kind)))
    return model, mean_square(model, 8, 12)


@architecture(torch.optim.AdamW, lr=0.01)
def every_other_activation():
    kinds = [nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(), nn.PReLU(12), nn.RReLU(), nn.Hardswish(), nn.Hardsigmoid(),
             nn.Hardtanh(), nn.Hardshrink(0.01), nn.Softshrink(0.01), nn.Threshold(0.0, 0.1)]  # fmt: skip
    model = nn.Sequential(*(layer for kind in kinds for layer in (nn.Linear(12, 12), kind)), nn.LogSoftmax(-1))
    return model, mean_square(model, 8, 12)


@architecture(torch.optim.RMSprop, lr=0.01)
def gated():
    model = nn.Sequential(
        nn.Linear(8, 32), nn.GLU(), nn.Linear(16, 16), nn.Softmax(-1), nn.Linear(16, 4), nn.Softmin(-1)
    )
    return model, mean_square(model, 16, 8)


# ---- convolutions ---------------------------------------------------------------------------------------------------


class Shuffled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 8, 1, groups=2)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.last = nn.Conv2d(8, 4, 1, groups=4)
        self.shuffle = nn.ChannelShuffle(2)

    def forward(self, image):
        return image + self.last(self.second(self.shuffle(functional.silu(self.first(image)))))


@architecture(torch.optim.SGD, lr=0.05)
def channel_shuffle():
    model = nn.Sequential(Shuffled(), Shuffled())
    return model, mean_square(model, 2, 4, 8, 8)


@architecture(torch.optim.Adadelta, lr=0.5)
def convolutions():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(8, 8, 3, dilation=2, padding=2), nn.Hardswish(), nn.AvgPool2d(2),
                          nn.ConvTranspose2d(8, 4, 2, stride=2), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
                          nn.Linear(36, 5))  # fmt: skip
    return model, labels(model, 5, 4, 3, 16, 16)


@architecture(torch.optim.Adagrad, lr=0.05)
def one_dimension():
    model = nn.Sequential(nn.Conv1d(2, 6, 5, stride=2), nn.GELU(), nn.MaxPool1d(2), nn.ConvTranspose1d(6, 3, 4),
                          nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(12, 2))  # fmt: skip
    return model, mean_square(model, 4, 2, 40)


@architecture(torch.optim.Adamax, lr=0.01)
def three_dimensions():
    model = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.InstanceNorm3d(4, affine=True), nn.ReLU(), nn.MaxPool3d(2),
                          nn.Conv3d(4, 4, 3), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 2))  # fmt: skip
    return model, mean_square(model, 2, 1, 8, 8, 8)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))  # fmt: skip

    def forward(self, image):
        return functional.relu(image + self.body(image), inplace=True)


@architecture(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
def residual():
    model = nn.Sequential(nn.Conv2d(3, 6, 3), Residual(6), Residual(6), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(6, 4))  # fmt: skip
    return model, labels(model, 4, 4, 3, 10, 10)


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 + 4 * at, 4, 3, padding=1) for at in range(3))

    def forward(self, image):
        for layer in self.layers:
            image = torch.cat([image, functional.elu(layer(image))], 1)
        return image.mean((2, 3))


@architecture(torch.optim.NAdam, lr=0.01)
def densely_connected():
    model = nn.Sequential(Dense(), nn.Linear(15, 3))
    return model, labels(model, 3, 4, 3, 8, 8)


@architecture(torch.optim.RAdam, lr=0.01)
def inverted_bottleneck():
    squeeze = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 4, 1), nn.ReLU(), nn.Conv2d(4, 16, 1), nn.Hardsigmoid()
    )

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.widen = nn.Sequential(nn.Conv2d(4, 16, 1), nn.BatchNorm2d(16), nn.Hardswish())
            self.depth = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.SiLU())
            self.squeeze = squeeze
            self.narrow = nn.Conv2d(16, 4, 1)

        def forward(self, image):
            wide = self.depth(self.widen(image))
            return image + self.narrow(wide * self.squeeze(wide))

    model = Block()
    return model, mean_square(model, 4, 4, 8, 8)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 6, 3, padding=1)
        self.middle = nn.Sequential(nn.Conv2d(6, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.SiLU())
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.out = nn.Conv2d(12, 1, 1)

    def forward(self, image):
        fine = functional.silu(self.down(image))
        coarse = self.up(self.middle(functional.max_pool2d(fine, 2)))
        small = functional.interpolate(coarse, scale_factor=0.5, mode="bilinear", align_corners=False)
        return self.out(torch.cat([fine, functional.interpolate(small, scale_factor=2, mode="nearest")], 1))


@architecture(torch.optim.AdamW, lr=0.01)
def u_net():
    model = UNet()
    return model, lambda step: functional.binary_cross_entropy_with_logits(
        model(torch.randn(2, 1, 16, 16)), torch.randint(2, (2, 1, 16, 16)).float(), pos_weight=torch.tensor([2.0])
    )


@architecture(torch.optim.SGD, lr=0.05)
def channels_last_pixel_shuffle():
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Mish(), nn.PixelShuffle(2), nn.Conv2d(4, 3, 3, padding=1),
                          nn.PixelUnshuffle(2), nn.ReflectionPad2d(1), nn.LPPool2d(2, 2))  # fmt: skip
    model = model.to(memory_format=torch.channels_last)
    return model, mean_square(model, 2, 3, 8, 8)


# ---- normalisation, dropout -----------------------------------------------------------------------------------------


@architecture(torch.optim.Rprop, lr=0.01)
def normalised():
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.InstanceNorm2d(8), nn.GroupNorm(2, 8), nn.LocalResponseNorm(3),
                          nn.Flatten(), nn.Linear(288, 12), nn.BatchNorm1d(12), nn.LayerNorm(12), nn.RMSNorm(12),
                          nn.Linear(12, 3))  # fmt: skip
    return model, mean_square(model, 4, 2, 8, 8)


@architecture(torch.optim.Adam, lr=0.01, amsgrad=True)
def dropped_out():
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.Dropout2d(0.3), nn.AlphaDropout(0.2), nn.Flatten(), nn.Dropout(0.4),
                          nn.Linear(288, 12), nn.FeatureAlphaDropout(0.2), nn.Linear(12, 3))  # fmt: skip
    return model, mean_square(model, 4, 2, 8, 8)


@architecture(torch.optim.ASGD, lr=0.01)
def weights_normalised():
    kinds = nn.utils.parametrizations
    layers = (kind(nn.Linear(8, 8)) for kind in (kinds.weight_norm, kinds.spectral_norm, kinds.orthogonal))
    model = nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())))
    return model, mean_square(model, 8, 8)


# ---- sequences ------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.cells = kind(6, 10, batch_first=True, **options)
        self.head = nn.Linear(20 if options.get("bidirectional") else 10, 2)

    def forward(self, rows):
        return self.head(self.cells(rows)[0])


@architecture(torch.optim.Adam, lr=0.01)
def lstm():
    model = Recurrent(nn.LSTM, num_layers=2, dropout=0.2, bidirectional=True)
    return model, mean_square(model, 3, 7, 6)


@architecture(torch.optim.SGD, lr=0.05)
def gru_and_rnn():
    model = nn.Sequential(Recurrent(nn.GRU), nn.Linear(2, 6), Recurrent(nn.RNN, nonlinearity="tanh"))
    return model, mean_square(model, 3, 7, 6)


@architecture(torch.optim.SGD, lr=0.05)
def cells_on_packed_rows():
    model = nn.LSTM(4, 6)

    def loss(step):
        rows = [torch.randn(length, 4) for length in (5, 3, 2)]
        return model(nn.utils.rnn.pack_sequence(rows))[0].data.square().mean()

    return model, loss


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 12, padding_idx=0)
        self.bags = nn.EmbeddingBag(30, 12, mode="mean")
        layer = nn.TransformerEncoderLayer(12, 3, 24, 0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(12, 5)

    def forward(self, tokens):
        rows = self.words(tokens) + self.bags(tokens).unsqueeze(1)
        return self.head(self.encoder(rows, src_key_padding_mask=tokens == 0))


@architecture(torch.optim.AdamW, lr=0.01)
def transformer_encoder():
    model = Tagger()
    return model, lambda step: functional.cross_entropy(
        model(torch.randint(30, (4, 9))).flatten(0, 1), torch.randint(5, (36,)), label_smoothing=0.1, ignore_index=3,
        weight=torch.tensor([0.3, 1.1, 0.7, 1.9, 0.2]),
    )  # fmt: skip


@architecture(torch.optim.Adam, lr=0.01)
def transformer_decoder():
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(12, 2, 24, 0.1, batch_first=True, norm_first=True), 2)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    return model, lambda step: model(torch.randn(2, 6, 12), torch.randn(2, 4, 12), tgt_mask=mask).square().mean()


@architecture(torch.optim.SGD, lr=0.05)
def attention():
    model = nn.MultiheadAttention(12, 3, dropout=0.1, batch_first=True, add_bias_kv=True)

    def loss(step):
        rows = torch.randn(2, 5, 12)
        out, weights = model(rows, rows, rows, need_weights=step % 2 == 0)
        return out.square().mean() + (weights.square().mean() if weights is not None else 0)

    return model, loss


class CausalBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out, self.norm = nn.Linear(12, 36), nn.Linear(12, 12), nn.RMSNorm(12)
        self.up, self.gate, self.down = nn.Linear(12, 32), nn.Linear(12, 32), nn.Linear(32, 12)

    def forward(self, rows):
        query, key, value = self.project(self.norm(rows)).unflatten(-1, (3, 2, 6)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        rows = rows + self.out(seen.transpose(1, 2).flatten(2))
        return rows + self.down(functional.silu(self.gate(rows)) * self.up(rows))


@architecture(torch.optim.AdamW, lr=0.01, fused=True)
def causal_language_model():
    model = nn.Sequential(nn.Embedding(20, 12), CausalBlock(), CausalBlock(), nn.Linear(12, 20))
    return model, lambda step: functional.cross_entropy(
        model(torch.randint(20, (2, 8))).flatten(0, 1), torch.randint(20, (16,))
    )


# ---- several networks, graphs, others -------------------------------------------------------------------------------


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(10, 8), nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 10))

    def forward(self, rows):
        mean, spread = self.encode(rows).chunk(2, -1)
        divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(-1).mean()
        return self.decode(mean + torch.randn_like(mean) * (0.5 * spread).exp()), divergence


@architecture(torch.optim.Adam, lr=0.01)
def variational_autoencoder():
    model = Variational()

    def loss(step):
        rows = torch.randn(8, 10)
        out, divergence = model(rows)
        return functional.smooth_l1_loss(out, rows) + divergence

    return model, loss


@architecture(torch.optim.Adam, lr=0.01)
def adversarial_with_gradient_penalty():
    make = nn.Sequential(nn.Linear(4, 12), nn.SiLU(), nn.Linear(12, 6))
    judge = nn.Sequential(nn.Linear(6, 12), nn.Mish(), nn.Linear(12, 1))

    def loss(step):
        made, real = make(torch.randn(8, 4)), torch.randn(8, 6)
        between = torch.lerp(real, made.detach(), torch.rand(8, 1)).requires_grad_()
        (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        return functional.softplus(-judge(made)).mean() + functional.softplus(judge(real)).mean() + penalty

    return nn.ModuleList([make, judge]), loss


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)) for _ in range(4))

    def forward(self, rows):
        weight, chosen = self.gate(rows).softmax(-1).topk(2)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, rank = torch.where(chosen == number)
            out = out.index_add(0, row, expert(rows[row]) * weight[row, rank, None])
        return out


@architecture(torch.optim.SGD, lr=0.05)
def mixture_of_experts():
    model = Experts()
    return model, mean_square(model, 16, 8)


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, nodes, edges):
        rows = self.first(nodes)
        rows = functional.elu(torch.zeros_like(rows).scatter_add(0, edges[1, :, None].expand(-1, 8), rows[edges[0]]))
        matrix = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (10, 10), check_invariants=True)
        rows = functional.elu(torch.sparse.mm(matrix, self.second(rows)))
        most = torch.zeros_like(rows).scatter_reduce(0, edges[1, :, None].expand(-1, 8), rows[edges[0]], "amax")
        return self.third(most)


@architecture(torch.optim.Adam, lr=0.01)
def graph_convolution():
    model = Graph()
    return model, lambda step: model(torch.randn(10, 6), torch.randint(10, (2, 40))).square().mean()


@architecture(torch.optim.SGD, lr=0.05)
def checkpointed():
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Dropout(0.2)) for _ in range(3))

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = blocks

        def forward(self, rows):
            for number, block in enumerate(self.blocks):
                rows = checkpoint(block, rows, use_reentrant=number == 1) + rows
            return rows

    model = Deep()
    return model, lambda step: model(torch.randn(8, 8).requires_grad_()).square().mean()


@architecture(torch.optim.SGD, lr=0.05)
def autocast():
    model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.Linear(288, 8), nn.Mish(),
                          nn.LayerNorm(8))  # fmt: skip
    head = nn.Bilinear(8, 8, 3)

    def loss(step):
        with torch.autocast("cpu", torch.bfloat16):
            rows = model(torch.randn(4, 2, 8, 8))
            return head(rows.float(), rows.float().tanh()).square().mean()

    return nn.ModuleList([model, head]), loss


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(9, 4, dtype=torch.complex64) * 0.1)
        self.out = nn.Linear(4, 4)

    def forward(self, rows):
        waves = torch.fft.rfft(rows, dim=1) * self.mix
        return self.out(torch.fft.irfft(waves * waves.conj().abs(), n=16, dim=1)) + torch.fft.fft2(rows).real


@architecture(torch.optim.Adam, lr=0.01)
def fourier_mixer():
    model = Fourier()
    return model, mean_square(model, 3, 16, 4)


@architecture(torch.optim.LBFGS, lr=0.5, max_iter=3)
def double_precision():
    model = nn.Sequential(nn.Linear(6, 8), nn.Mish(), nn.Linear(8, 1)).double()
    rows, target = torch.randn(12, 6, dtype=torch.float64), torch.randn(12, 1, dtype=torch.float64)
    return model, lambda step: functional.huber_loss(model(rows), target)


@architecture(torch.optim.SGD, lr=0.01)
def half_precision():
    model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 4)).to(torch.bfloat16)
    return model, lambda step: model(torch.randn(8, 8, dtype=torch.bfloat16)).square().mean()


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.fill = nn.Linear(6, 6), nn.Parameter(torch.tensor(0.3))

    def forward(self, rows):
        rows = self.rows(rows)
        filled = rows.masked_fill(rows > 0.5, self.fill)
        wave = filled.cumprod(-1) + filled.cumsum(-1).logcumsumexp(-1) + filled.sort(-1).values
        values = torch.linalg.svdvals(filled.T @ filled + torch.eye(6))
        return wave.mean() + (1 + filled.tanh()).prod(-1).mean() + values.sum() + torch.linalg.matrix_norm(rows, "nuc")


@architecture(torch.optim.SGD, lr=1e-3)
def products_and_spectra():
    model = Products()
    return model, lambda step: model(torch.randn(16, 6))


@architecture(torch.optim.Adam, lr=0.01)
def siamese():
    model = nn.Sequential(nn.Linear(8, 12), nn.SiLU(), nn.Linear(12, 4))

    def loss(step):
        one, same, other = (model(torch.randn(8, 8)) for _ in range(3))
        return (
            functional.triplet_margin_loss(one, same, other)
            + functional.cosine_embedding_loss(one, same, torch.ones(8))
            + functional.margin_ranking_loss(one[:, 0], other[:, 0], torch.ones(8), margin=0.1)
            + functional.hinge_embedding_loss(one, torch.ones_like(one))
        )

    return model, loss


@architecture(torch.optim.SGD, lr=0.01)
def speech_to_text():
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6), nn.LogSoftmax(-1))

    def loss(step):
        lengths = torch.full((3,), 4), torch.tensor([4, 3, 2])
        return functional.ctc_loss(
            model(torch.randn(12, 3, 5)), torch.randint(1, 6, (3, 4)), lengths[0] * 3, lengths[1]
        )

    return model, loss


@architecture(torch.optim.SGD, lr=0.05)
def spatial_transformer():
    locate = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))

    class Bent(nn.Module):
        def __init__(self):
            super().__init__()
            self.locate, self.conv = locate, nn.Conv2d(1, 2, 3)

        def forward(self, image):
            places = functional.affine_grid(self.locate(image).view(-1, 2, 3), image.shape, align_corners=False)
            return self.conv(functional.grid_sample(image, places, align_corners=False))

    model = Bent()
    return model, mean_square(model, 3, 1, 8, 8)


def train(name, steps=STEPS):
    make, optimizer_class, options = ARCHITECTURES[name]
    torch.manual_seed(0)
    model, compute_loss = make()
    KEPT.append(model)
    optimizer = optimizer_class(model.parameters(), **options)
    for step in range(steps):

        def closure(step=step):
            optimizer.zero_grad()
            loss = compute_loss(step)
            loss.backward()
            return loss

        if optimizer_class is torch.optim.LBFGS:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    finite = all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())
    return f"{name} {digest.hexdigest()} {'finite' if finite else 'not finite'}"


if __name__ == "__main__":
    part, _, parts = sys.argv[1].partition("/")
    for chosen in list(ARCHITECTURES)[int(part) :: int(parts)] if parts else sys.argv[2:]:
        print(train(chosen) if parts else train(chosen, int(part)), flush=True)
