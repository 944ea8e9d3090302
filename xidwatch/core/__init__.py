"""The pure half of xidwatch: values in, values out. No clock, no file, no process, nothing third-party."""
