# One image with the four processes of kbatch (kbatch-scheduler, kbatch-podgroup, kbatch-queue, kbatch-webhook); which of
# them runs is the command of the container:
#
#   docker build -t kbatch-operators:0.1.0 .

# A release gives both with the digests that the tags had when it was built.
ARG UV_IMAGE=ghcr.io/astral-sh/uv:0.13.8
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${UV_IMAGE} AS uv

FROM ${PYTHON_IMAGE} AS build
COPY --from=uv /uv /usr/local/bin/uv
# The environment is made where it will stand, as its scripts name their interpreter by its full path.
ENV UV_PROJECT_ENVIRONMENT=/opt/kbatch \
    UV_PYTHON_DOWNLOADS=never \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy
WORKDIR /src
# What compiles the engine stays in this stage.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
# First what changes rarely: the dependencies, exactly as locked.
COPY pyproject.toml uv.lock ./
RUN uv sync --locked --no-dev --no-install-project
RUN UV_PROJECT_ENVIRONMENT=/opt/compiler uv sync --locked --no-dev --no-install-project --group compile
COPY README.md LICENSE ./
COPY kbatch kbatch
COPY operators operators
COPY webhooks webhooks
COPY tools tools
RUN uv sync --locked --no-dev --no-editable
# Beside the modules of the engine, in their place (docs/decisions/0044-compiled-engine.md).
RUN /opt/compiler/bin/python -m tools.compiled --into /opt/kbatch/lib/python3.11/site-packages

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="kbatch" \
      org.opencontainers.image.description="A batch scheduler for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/kbatch /opt/kbatch
# The root file system is read-only in the chart: nothing is compiled later.
ENV PATH=/opt/kbatch/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
WORKDIR /tmp
CMD ["kbatch", "--help"]
