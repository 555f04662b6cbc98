# syntax=docker/dockerfile:1
# One static binary and nothing else. Time zones and public roots are compiled in.
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t offhours .
#
# The compiler runs on the builder's own architecture and builds for the other one; dependencies are a layer of their own.

ARG RUST_VERSION=1.95.0

FROM --platform=$BUILDPLATFORM rust:${RUST_VERSION}-bookworm AS toolchain
ARG TARGETARCH
RUN apt-get update \
 && apt-get install -y --no-install-recommends musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
 && rm -rf /var/lib/apt/lists/* \
 && case "$TARGETARCH" in \
      amd64) echo x86_64-unknown-linux-musl ;; \
      arm64) echo aarch64-unknown-linux-musl ;; \
      *) echo "no image is built for $TARGETARCH" >&2; exit 1 ;; \
    esac >/target \
 && rustup target add "$(cat /target)"
# ring compiles C and assembler, without a C library; rustc brings musl itself.
ENV CC_x86_64_unknown_linux_musl=musl-gcc \
    CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld \
    CARGO_TARGET_DIR=/build
WORKDIR /source

# What dependencies need to be built: manifests, and sources that say nothing.
FROM toolchain AS recipe
COPY . .
RUN find . -name '*.rs' -not -path './target/*' -delete \
 && for crate in shared cluster scheduler webhook certs tests/harness tests/e2e; do mkdir -p "$crate/src" && echo '//! Nothing.' >"$crate/src/lib.rs"; done \
 && mkdir -p cli/src && printf '//! Nothing.\nfn main() {}\n' >cli/src/main.rs \
 && find . -type f -not -name Cargo.toml -not -name Cargo.lock -not -name '*.rs' -not -name rust-toolchain.toml -delete

FROM toolchain AS dependencies
COPY --from=recipe /source /source
# Benches are named in manifests without being there: only the binary is built.
RUN sed -i '/^\[\[bench\]\]/,/^$/d' */Cargo.toml tests/*/Cargo.toml \
 && cargo build --release --locked --target "$(cat /target)" --package offhours

FROM dependencies AS build
COPY . .
# Sources that said nothing are older than nothing: all of ours are built anew.
RUN find shared cluster scheduler webhook certs cli -name '*.rs' -exec touch {} + \
 && cargo build --release --locked --target "$(cat /target)" --package offhours \
 && install -D "/build/$(cat /target)/release/offhours" /image/offhours \
 && install -d -m 1777 /image/tmp

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="offhours" \
      org.opencontainers.image.description="Puts development clusters to sleep outside working hours and brings them back exactly as they were." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/ /
COPY LICENSE /LICENSE
USER 65532:65532
EXPOSE 8080 9443
ENTRYPOINT ["/offhours"]
