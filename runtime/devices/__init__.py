"""Run attention on a device. This module is light, so that help texts can import it."""

from ...settings import DEVICES

AUTO, CPU, METAL = DEVICES
