"""xidwatch: flight recorder and safe-restart supervisor for multi-GPU Linux inference hosts."""

__version__ = "0.1.0"
