"""ResNet and ResNeXt. Source: He et al., CVPR 2016; Xie et al., CVPR 2017."""

from __future__ import annotations

from torch import Tensor, nn

from bench.workloads import BasicBlock


class Bottleneck(nn.Module):
    """1x1 down, 3x3 in groups, 1x1 up, and the shortcut."""

    def __init__(self, inputs: int, outputs: int, middle: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, middle, 3, stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs, height, width) to (batch, outputs, height / stride, width / stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """A stem, stages of blocks with twice the channels and half the size each, global average, a dense layer.

    `groups` of 0 makes basic blocks; otherwise bottlenecks whose 3x3 has groups of `group_width` channels at first.
    """

    def __init__(
        self,
        blocks: tuple[int, ...],
        width: int = 64,
        groups: int = 0,
        group_width: int = 64,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        )
        layers: list[nn.Module] = []
        inputs = width
        for stage, count in enumerate(blocks):
            for number in range(count):
                stride = 2 if stage and not number else 1
                outputs = (width if not groups else 4 * width) << stage
                if groups:
                    layers.append(Bottleneck(inputs, outputs, (groups * group_width) << stage, stride, groups))
                else:
                    layers.append(BasicBlock(inputs, outputs, stride))
                inputs = outputs
        self.layers = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (batch, 3, height, width) to scores (batch, classes)."""
        return self.head(self.pool(self.layers(self.stem(x))).flatten(1))
