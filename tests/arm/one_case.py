"""A plugin of pytest that keeps one case of each test: under emulation a kernel takes seconds to compile.

The first case of a test is kept.
"""

import hypothesis

#: Tests that start processes, which an emulated interpreter cannot.
_START_PROCESSES = {"test_background_compile.py", "test_kernel_cache.py"}


def pytest_configure():
    hypothesis.settings.register_profile("emulated", max_examples=3, deadline=None, database=None)
    hypothesis.settings.load_profile("emulated")


def pytest_collection_modifyitems(items, config):
    kept, seen = [], set()
    for item in items:
        test = item.path, getattr(item, "originalname", item.name)
        if item.path.name not in _START_PROCESSES and test not in seen and item.get_closest_marker("slow") is None:
            kept.append(item)
            seen.add(test)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
