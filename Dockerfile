# The image of dynsched: Python, one virtual environment, nothing else.
#
#   docker build -t registry.example.com/dynsched:0.3.0 .
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
# Without dynsched_sim, the simulated cluster of the demo and the tests.
COPY dynsched ./dynsched
# What dynsched links to: rules that ship, and policies.
COPY manifests ./manifests
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
    && /opt/dynsched/bin/python -m pip install --no-cache-dir --no-compile --no-deps --no-index /tmp/wheel/*.whl
# Half of what is installed is never imported by dynsched: a class for each Kubernetes API and object
# (it sends JSON by aiohttp), tests, colours for source code, dates in words. A test
# takes them out by this step too (tests/tools/test_image.py). If one is needed, tools/bytecode.py
# ends the build.
WORKDIR /opt/dynsched/lib/python3.12/site-packages
RUN ../../../bin/python -m pip uninstall --yes \
        pygments markdown-it-py mdurl dateparser regex pytz tzlocal pip \
    && rm -r kubernetes/client/api/[a-z]* kubernetes/client/models/[a-z]* \
        kubernetes/aio/client/api/[a-z]* kubernetes/aio/client/models/[a-z]* \
    && find . -type d -name tests -prune -exec rm -r {} +

FROM ${BASE}
COPY --from=build /opt/dynsched /opt/dynsched
# Without bytecode the process needs 143 MB instead of 81, and cannot write it: the root is read-only.
# The base image has none of the standard library. Modules that are never imported need none.
RUN --mount=type=bind,source=tools/bytecode.py,target=/tmp/bytecode.py \
    /opt/dynsched/bin/python /tmp/bytecode.py
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
