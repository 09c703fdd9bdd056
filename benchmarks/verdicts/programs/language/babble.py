"""A small decoder-only language model, trained by plain functions."""

import math

import torch
import torch.nn.functional as F

WIDTH, HEADS, DEPTH, VOCABULARY, BLOCK = 256, 4, 2, 512, 128


def weights():
    def matrix(rows, columns):
        return (torch.randn(rows, columns) / math.sqrt(rows)).requires_grad_()

    layers = [
        {
            "qkv": matrix(WIDTH, 3 * WIDTH),
            "out": matrix(WIDTH, WIDTH),
            "up": matrix(WIDTH, 4 * WIDTH),
            "down": matrix(4 * WIDTH, WIDTH),
        }
        for _ in range(DEPTH)
    ]
    return {
        "embed": matrix(VOCABULARY, WIDTH),
        "place": matrix(BLOCK, WIDTH),
        "head": matrix(WIDTH, VOCABULARY),
    }, layers


def attend(x, layer):
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (x @ layer["qkv"]).chunk(3, dim=-1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).flatten(2) @ layer["out"]


def score(common, layers, ids):
    x = F.embedding(ids, common["embed"]) + common["place"][: ids.shape[1]]
    for layer in layers:
        x = x + attend(F.layer_norm(x, (WIDTH,)), layer)
        x = x + F.gelu(F.layer_norm(x, (WIDTH,)) @ layer["up"]) @ layer["down"]
    return F.layer_norm(x, (WIDTH,)) @ common["head"]


def main():
    torch.manual_seed(102)
    common, layers = weights()
    parameters = [*common.values(), *[matrix for layer in layers for matrix in layer.values()]]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    text = (torch.arange(50_000) * 7 + torch.randint(3, (50_000,))) % VOCABULARY
    for step in range(1, 41):
        begin = torch.randint(len(text) - BLOCK - 1, (8, 1))
        ids = text[begin + torch.arange(BLOCK + 1)]
        loss = F.cross_entropy(score(common, layers, ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
