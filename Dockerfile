# The image of dynsched: Python, one virtual environment, nothing else.
#
#   docker build -t registry.example.com/dynsched:0.2.0 .
#
# Behind a proxy that changes certificates, with its CA: --secret id=ca,src=/path/to/ca.pem

# A release is built on the digest that this tag had then: .github/workflows/release.yml
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# Nothing is installed whose content is not known: each file of each package has its hash here.
COPY requirements.txt requirements-build.txt ./
RUN --mount=type=secret,id=ca \
    if [ -e /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi \
    && python -m venv /opt/dynsched \
    && python -m pip install --no-cache-dir --require-hashes -r requirements-build.txt \
    && /opt/dynsched/bin/python -m pip install --no-cache-dir --no-compile \
        --only-binary :all: --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
# Without dynsched/sim: see .dockerignore.
COPY dynsched ./dynsched
# What dynsched/tools/inject/components links to.
COPY manifests ./manifests
# pip's own bytecode would be checked against the sources' dates, so compileall does it instead
# (unchecked: the root is read-only in the cluster, nothing there changes). Without bytecode the
# process needs 143 MB instead of 81. pip itself has no business in the image.
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
    && /opt/dynsched/bin/python -m pip install --no-cache-dir --no-compile --no-deps --no-index /tmp/wheel/*.whl \
    && /opt/dynsched/bin/python -m pip uninstall --yes pip \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/dynsched/lib

FROM ${BASE}
# The base image ships the standard library without bytecode.
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
    -x '/(site-packages|test|tests|idle_test)/' /usr/local/lib/python3.12
COPY --from=build /opt/dynsched /opt/dynsched
ENV PATH=/opt/dynsched/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /etc/dynsched
# By number: runAsNonRoot can only check a number.
USER 65532:65532
EXPOSE 9000
# Kubernetes does not look at it; the probes in manifests/base/deployment.yaml take its place.
HEALTHCHECK NONE
ENTRYPOINT ["dynsched"]
CMD ["run"]
