"""VGG-16. Source: Simonyan and Zisserman, ICLR 2015."""

from __future__ import annotations

from torch import Tensor, nn


class VGG16(nn.Module):
    """Thirteen 3x3 convolutions in five stages, and three dense layers; `depth` bounds the convolutions of a stage."""

    def __init__(
        self, width: int = 64, hidden: int = 4096, classes: int = 1000, pooled: int = 7, depth: int = 3
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for factor, count in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
            for _ in range(min(count, depth)):
                layers += [nn.Conv2d(inputs, factor * width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = factor * width
            layers.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(pooled)
        self.head = nn.Sequential(
            nn.Linear(inputs * pooled**2, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to scores (batch, classes)."""
        return self.head(self.pool(self.features(x)).flatten(1))
