"""What all tests share; the fixtures named `mala_…` come from the package's own pytest plugin."""

pytest_plugins = ["pytester"]
