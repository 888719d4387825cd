"""Where attention runs. This module is light, so that help texts can name the devices."""

AUTO, CPU, METAL = "auto", "cpu", "metal"

#: What `--device` takes.
DEVICES = (AUTO, CPU, METAL)
