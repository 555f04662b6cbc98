# syntax=docker/dockerfile:1
# One static binary and nothing else. Time zones and public roots are compiled in.
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t offhours .
#
# The compiler runs on the builder's own architecture, whichever that is, and builds for the wanted one; dependencies are a
# layer of their own.

ARG RUST_VERSION=1.95.0

FROM --platform=$BUILDPLATFORM rust:${RUST_VERSION}-bookworm AS toolchain
ARG BUILDARCH
ARG TARGETARCH
COPY .ci/image-toolchain /usr/local/bin/
# Either architecture builds for either one. What depends on both is in a configuration of cargo, which every later step reads.
RUN image-toolchain "$BUILDARCH" "$TARGETARCH" >/toolchain && . /toolchain \
 && apt-get update \
 && apt-get install -y --no-install-recommends $packages \
 && rm -rf /var/lib/apt/lists/* \
 && rustup target add "$target" \
 && echo "$target" >/target \
 && printf '[env]\nCC_%s = "%s"\n' "$(echo "$target" | tr - _)" "${compilers%% *}" >"$CARGO_HOME/config.toml" \
 && if [ -n "$linker" ]; then printf '[target.%s]\nlinker = "%s"\n' "$target" "$linker" >>"$CARGO_HOME/config.toml"; fi
ENV CARGO_TARGET_DIR=/build
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
