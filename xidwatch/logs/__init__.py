"""Kernel logs as files: opening, unpacking, following, and finding the lines worth reading. What they mean is `core`'s business."""
