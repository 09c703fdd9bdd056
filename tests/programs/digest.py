"""What every program here prints at its end: its losses and a hash of its weights, to the last bit."""

import hashlib


def report(losses, *models):
    for loss in losses:
        print(float(loss).hex())
    digest = hashlib.sha256()
    for model in models:
        for name, tensor in model.state_dict().items():
            digest.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
    print(digest.hexdigest())
