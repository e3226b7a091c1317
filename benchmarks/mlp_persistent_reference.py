"""The training step of an MLP in numpy, rounding to fp16 exactly where the kernel does."""

from __future__ import annotations

import numpy as np

SGD, MOMENTUM, NESTEROV, ADAM, ADAMW = range(5)


class Reference:
    """State and step; matrix products and the optimizer run in fp64."""

    def __init__(
        self,
        weights,
        biases,
        *,
        rule,
        lr_table,
        loss_scale,
        growth_interval=2000,
        smoothing=0.1,
        momentum=0.9,
        beta1=0.9,
        beta2=0.999,
        eps=1e-8,
        weight_decay=1e-4,
        scale_maximum=2.0**24,
        rounding=True,
    ):
        self.w = [w.astype(np.float64) for w in weights]
        self.b = [b.astype(np.float64) for b in biases]
        self.mw, self.vw = ([np.zeros_like(x) for x in self.w] for _ in range(2))
        self.mb, self.vb = ([np.zeros_like(x) for x in self.b] for _ in range(2))
        self.rule, self.lr_table, self.scale = rule, lr_table, float(loss_scale)
        self.growth_interval, self.scale_maximum = growth_interval, scale_maximum
        self.smoothing, self.momentum = smoothing, momentum
        self.beta1, self.beta2, self.eps, self.weight_decay = beta1, beta2, eps, weight_decay
        self.applied = self.skipped = self.clean = 0
        self.rounding = rounding

    def half(self, x):
        if not self.rounding:
            return np.asarray(x, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(x, np.float32).astype(np.float16).astype(np.float64)

    def gradients(self, x, labels):
        w = [self.half(v) for v in self.w]
        h = [np.asarray(x, np.float64)]
        n = len(labels)
        for i in range(len(w)):
            z = h[-1] @ w[i].T + self.b[i]
            h.append(self.half(np.maximum(z, 0)) if i + 1 < len(w) else z)
        logits = h.pop()
        k = logits.shape[1]
        top = logits.max(1, keepdims=True)
        e = np.exp(logits - top)
        p = e / e.sum(1, keepdims=True)
        target = np.full_like(p, self.smoothing / k)
        target[np.arange(n), labels] += 1 - self.smoothing
        log_p = logits - top - np.log(e.sum(1, keepdims=True))
        own = logits[np.arange(n), labels][:, None]
        rank = ((logits > own) | ((logits == own) & (np.arange(k) < labels[:, None]))).sum(1)
        metrics = [-(target * log_p).sum(), (rank < 1).sum(), (rank < 5).sum(), n]
        d = self.half((p - target) * (self.scale / n))
        gw, gb = [None] * len(w), [None] * len(w)
        with np.errstate(over="ignore", invalid="ignore"):
            for i in reversed(range(len(w))):
                gw[i] = self.half(d.T @ h[i])
                gb[i] = d.sum(0)
                if i:
                    d = self.half((d @ w[i]) * (h[i] > 0))
        return metrics, gw, gb

    def update(self, w, g, m, v, decays):
        lr = float(self.lr_table[min(self.applied, len(self.lr_table) - 1)])
        decay, t = (self.weight_decay if decays else 0.0), self.applied + 1
        if self.rule in (ADAM, ADAMW):
            if self.rule == ADAM:
                g = g + decay * w
            m[:] = self.beta1 * m + (1 - self.beta1) * g
            v[:] = self.beta2 * v + (1 - self.beta2) * g * g
            direction = m / (1 - self.beta1**t) / (np.sqrt(v / (1 - self.beta2**t)) + self.eps)
            if self.rule == ADAMW:
                direction = direction + decay * w
            w -= lr * direction
            return
        g = g + decay * w
        if self.rule == SGD:
            w -= lr * g
            return
        m[:] = self.momentum * m + g
        w -= lr * (g + self.momentum * m if self.rule == NESTEROV else m)

    def step(self, x, labels):
        metrics, gw, gb = self.gradients(x, labels)
        if not all(np.isfinite(g).all() for g in gw + gb):
            self.skipped, self.clean, self.scale = self.skipped + 1, 0, max(self.scale / 2, 1.0)
            return metrics
        for i in range(len(self.w)):
            self.update(self.w[i], gw[i] / self.scale, self.mw[i], self.vw[i], True)
            self.update(self.b[i], gb[i] / self.scale, self.mb[i], self.vb[i], False)
        self.applied, self.clean = self.applied + 1, self.clean + 1
        if self.clean >= self.growth_interval:
            self.scale, self.clean = min(self.scale * 2, self.scale_maximum), 0
        return metrics
