# The image of dynsched: only Python and one virtual environment.
#
#   docker build -t registry.example.com/dynsched:0.3.0 .
#
# Behind a proxy that replaces certificates, pass its CA: --secret id=ca,src=/path/to/ca.pem

# .github/workflows/release.yml builds on the current digest of this tag.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# These files pin every package by the hashes of its files, so only known content is installed.
COPY requirements.txt requirements-build.txt ./
RUN --mount=type=secret,id=ca \
    if [ -e /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi \
    && python -m venv /opt/dynsched \
    && python -m pip install --no-cache-dir --require-hashes -r requirements-build.txt \
    && /opt/dynsched/bin/python -m pip install --no-cache-dir --no-compile \
        --only-binary :all: --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
# dynsched_sim is left out: only the demo and the tests need the simulated cluster.
COPY dynsched ./dynsched
# dynsched contains a symbolic link to the shipped rules.
COPY manifests ./manifests
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
    && /opt/dynsched/bin/python -m pip install --no-cache-dir --no-compile --no-deps --no-index /tmp/wheel/*.whl
# dynsched never imports half of what is installed: a class for each Kubernetes API and object (it sends
# JSON with aiohttp), tests, syntax highlighting and date parsing. tests/tools/test_image.py runs this step too.
# If dynsched needs one of these modules, tools/bytecode.py fails the build.
WORKDIR /opt/dynsched/lib/python3.12/site-packages
RUN ../../../bin/python -m pip uninstall --yes \
        pygments markdown-it-py mdurl dateparser regex pytz tzlocal pip \
    && rm -r kubernetes/client/api/[a-z]* kubernetes/client/models/[a-z]* \
        kubernetes/aio/client/api/[a-z]* kubernetes/aio/client/models/[a-z]* \
    && find . -type d -name tests -prune -exec rm -r {} +

FROM ${BASE}
COPY --from=build /opt/dynsched /opt/dynsched
# Compiles bytecode. Without it the process needs 143 MB instead of 81, and it cannot write bytecode
# itself, because the root is read-only. The base image has no bytecode of the standard library. Modules
# that are never imported need none.
RUN --mount=type=bind,source=tools/bytecode.py,target=/tmp/bytecode.py \
    /opt/dynsched/bin/python /tmp/bytecode.py
ENV PATH=/opt/dynsched/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /etc/dynsched
# A number, because runAsNonRoot cannot check a name.
USER 65532:65532
EXPOSE 9000
# Kubernetes ignores HEALTHCHECK and uses the probes in manifests/base/deployment.yaml.
HEALTHCHECK NONE
ENTRYPOINT ["dynsched"]
CMD ["run"]
