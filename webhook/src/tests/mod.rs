//! Tests of the webhook: reviews in, reviews out, no sockets.

mod cases;
mod configure;
mod hold;
mod properties;
mod recorded;
mod review;
mod serving;
mod world;
