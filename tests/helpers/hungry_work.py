"""Work that takes all that it gets, for tests of limits."""

from octavo.workers.work import Work, WorkLimits


class Hungry(Work):
    """Takes time or memory without end, or nothing, as a message says."""

    def do(self, message):
        held = []
        while message["takes"] == "memory":
            held.append(bytearray(64 << 20))
        while message["takes"] == "time":
            pass
        return {"pid": message["takes"]}

    def limits(self, message):
        return WorkLimits(1.0, 700 << 20)

    def close(self):
        pass
